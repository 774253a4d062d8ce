/* Log lines of plugins. They wait in a ring for the one thread that takes them; where nobody does, as in a
 * child process, they go to standard error at once, in the shape of Triton's. */

typedef struct {
  int level; /* -1 for no line, but a number of dropped ones */
  int line;
  const char *file;
  const char *message;
  size_t message_size;
  uint64_t time_ns; /* of the wall clock, since 1970 */
  uint64_t dropped; /* further lines, for which there was no room */
} TRITONPY_LogLine;

/* Which levels are logged: the bit `1 << level` for each. At first all but the verbose one. */
void TRITONPY_LogEnable(uint32_t levels);
/* From here on another process says so, in the first byte of a file, and reads standard error: lines of the verbose
 * level begin with V there, where Triton writes I. The descriptor is needed no longer than this takes. */
TRITONSERVER_Error *TRITONPY_LogFollow(int descriptor);
/* The same, with a byte of shared memory that stays for ever. */
void TRITONPY_LogFollowAt(const uint8_t *levels);

/* From here on lines wait to be taken. */
void TRITONPY_LogCollect(void);
/* Waits for a line, which is there until the next call; false once there is none left and `TRITONPY_LogStop`
 * was called. On one thread only. */
bool TRITONPY_LogTake(TRITONPY_LogLine *line);
/* Waits until all that was logged before has been taken, and whoever took it has come back for more. */
bool TRITONPY_LogFlush(uint32_t timeout_ms);
/* The taker may go once it has taken what is there. Later lines go to standard error. */
void TRITONPY_LogStop(void);
