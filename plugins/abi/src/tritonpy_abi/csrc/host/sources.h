/* A digest of what this library was compiled from, which tells whether it fits the declarations beside it. */
const char *TRITONPY_Sources(void);
