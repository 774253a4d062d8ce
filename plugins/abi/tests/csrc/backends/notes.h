/* Lines in the file that BACKEND_NOTES names: process, thread, what it is about, and what was heard. */
#pragma once

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tritonpy/backend.h"

#define NOTE_BYTES 65536

/* One write for each line: threads and processes do not mix theirs. */
__attribute__((format(printf, 2, 3))) static inline void note(const char *about, const char *format, ...) {
  char line[NOTE_BYTES];
  const char *path = getenv("BACKEND_NOTES");
  if (path == NULL) return;
  int length = snprintf(line, sizeof(line), "%d %ld %s\t", getpid(), syscall(SYS_gettid), about);
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
  va_end(arguments);
  if (length > NOTE_BYTES - 2) length = NOTE_BYTES - 2;
  for (int at = 0; at < length; ++at) {
    if (line[at] == '\n') line[at] = ' ';
  }
  line[length++] = '\n';
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (write(file, line, (size_t)length) != length) abort();
  close(file);
}

/* True if a question was answered; notes why not. */
static inline bool answered(const char *about, const char *question, TRITONSERVER_Error *error) {
  if (error == NULL) return true;
  note(about, "  %s: %s (%d): %s", question, TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorCode(error),
       TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return false;
}

static inline void note_message(const char *about, const char *what, TRITONSERVER_Message *message) {
  const char *json = NULL;
  size_t size = 0;
  if (answered(about, what, TRITONSERVER_MessageSerializeToJson(message, &json, &size))) {
    note(about, "  %s: %.*s", what, (int)size, json);
  }
}
