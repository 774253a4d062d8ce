/* What the driver calls. cffi reads these files as they are: declarations of C, no preprocessor. */

typedef struct TRITONSERVER_Error TRITONSERVER_Error;

/* Open a shared object; the handle stays valid for ever. An error has the linker's words. */
TRITONSERVER_Error *TRITONPY_Open(const char *path, void **handle);
/* A function of a shared object, or NULL. */
void *TRITONPY_Symbol(void *handle, const char *name);
/* The file from which a shared object has functions of Triton's API instead of this library's; else NULL. */
const char *TRITONPY_Intruder(void *handle);

int TRITONPY_ErrorCode(TRITONSERVER_Error *error);
const char *TRITONPY_ErrorMessage(TRITONSERVER_Error *error);
void TRITONPY_ErrorDelete(TRITONSERVER_Error *error);
