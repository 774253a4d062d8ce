/* Lines from several threads, while one takes them; and lines when nobody does. */
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINES 2000

static void *take(void *argument) {
  uint64_t *seen = argument;
  TRITONPY_LogLine line;
  while (TRITONPY_LogTake(&line)) {
    *seen += line.dropped;
    if (line.level >= 0) {
      CHECK(memchr(line.message, '!', line.message_size) != NULL);
      CHECK(strlen(line.file) > 0 && line.time_ns > 0);
      ++*seen;
    }
  }
  return NULL;
}

static void log_lines(int number, void *argument) {
  (void)argument;
  char text[100];
  for (int line = 0; line < LINES; ++line) {
    snprintf(text, sizeof(text), "thread %d says %d!\n\"\\", number, line);
    OK(TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, text));
    OK(TRITONSERVER_LogMessage(TRITONSERVER_LOG_VERBOSE, __FILE__, __LINE__, NULL));
    if (line % 500 == number) {
      TRITONPY_LogFlush(1000);
    }
  }
}

static void change_levels(int number, void *argument) {
  (void)argument;
  for (int change = 0; change < 100; ++change) {
    TRITONPY_LogEnable(number % 2 == 0 ? 7U : 15U);
    CHECK(TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_ERROR));
  }
}

void drive_logs(void) {
  pthread_t taker;
  uint64_t seen = 0;
  on_threads(change_levels, NULL);
  TRITONPY_LogEnable(7U);
  CHECK(!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE));
  CHECK(!TRITONSERVER_LogIsEnabled((TRITONSERVER_LogLevel)9));
  TRITONPY_LogCollect();
  CHECK(pthread_create(&taker, NULL, take, &seen) == 0);
  on_threads(log_lines, NULL);
  CHECK(TRITONPY_LogFlush(10000));
  TRITONPY_LogStop();
  pthread_join(taker, NULL);
  CHECK(seen == THREADS * LINES);

  /* Nobody takes this one: it goes to standard error. */
  OK(TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, NULL, 1, "nobody listens"));
  FAILS(
      TRITONSERVER_ERROR_INVALID_ARG, "NULL", TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, "a.c", 1, NULL));
  FAILS(
      TRITONSERVER_ERROR_INVALID_ARG, "level",
      TRITONSERVER_LogMessage((TRITONSERVER_LogLevel)9, "a.c", 1, ""));

  /* Now another process says what is logged. */
  FAILS(TRITONSERVER_ERROR_INTERNAL, "cannot see", TRITONPY_LogFollow(-1));
  FILE *levels = tmpfile();
  fputc(1 << TRITONSERVER_LOG_VERBOSE, levels);
  fflush(levels);
  OK(TRITONPY_LogFollow(fileno(levels)));
  CHECK(TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE));
  CHECK(!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_INFO));
  OK(TRITONSERVER_LogMessage(TRITONSERVER_LOG_VERBOSE, "a.c", 1, "for the other process"));
  rewind(levels);
  fputc(1 << TRITONSERVER_LOG_INFO, levels);
  fclose(levels);
  CHECK(!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE));
  CHECK(TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_INFO));
}
