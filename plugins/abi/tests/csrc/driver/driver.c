/* driver LIBRARY SUBJECT...: one after the other. */
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *plugin;
static const char *path;

typedef struct {
  void (*function)(int number, void *argument);
  void *argument;
  int number;
} Start;

void check(bool holds, const char *what, const char *file, int line) {
  if (!holds) {
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    exit(1);
  }
}

void check_error(
    TRITONSERVER_Error *error, int code, const char *words, const char *what, const char *file, int line) {
  const int got = error == NULL ? -1 : TRITONPY_ErrorCode(error);
  const char *message = error == NULL ? "" : TRITONPY_ErrorMessage(error);
  if (got != code || strstr(message, words) == NULL) {
    fprintf(
        stderr, "%s:%d: %s gives %d '%s', and not %d '%s'\n", file, line, what, got, message, code, words);
    exit(1);
  }
  TRITONPY_ErrorDelete(error);
}

static void *begin(void *argument) {
  Start *start = argument;
  start->function(start->number, start->argument);
  return NULL;
}

void on_threads(void (*function)(int number, void *argument), void *argument) {
  pthread_t threads[THREADS];
  Start starts[THREADS];
  for (int number = 0; number < THREADS; ++number) {
    starts[number] = (Start){function, argument, number};
    CHECK(pthread_create(&threads[number], NULL, begin, &starts[number]) == 0);
  }
  for (int number = 0; number < THREADS; ++number) {
    pthread_join(threads[number], NULL);
  }
}

void *function_of(const char *name) {
  void *found = TRITONPY_Symbol(plugin, name);
  check(found != NULL, name, path, 0);
  return found;
}

const char *plugin_path(void) {
  return path;
}

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    void (*drive)(void);
  } subjects[] = {{"core", drive_core},       {"logs", drive_logs},
                  {"metrics", drive_metrics}, {"strategies", drive_strategies},
                  {"agents", drive_agents},   {"caches", drive_caches},
                  {"backends", drive_backends}, {"calls", drive_calls},   {"probe", drive_probe},     {"race", make_race},
                  {"leak", make_leak},        {"overrun", make_overrun}};
  CHECK(count > 2);
  path = arguments[1];
  OK(TRITONPY_Open(path, &plugin));
  CHECK(TRITONPY_Intruder(plugin) == NULL);
  for (int index = 2; index < count; ++index) {
    bool is_known = false;
    for (size_t subject = 0; subject < sizeof(subjects) / sizeof(subjects[0]); ++subject) {
      if (strcmp(subjects[subject].name, arguments[index]) == 0) {
        subjects[subject].drive();
        is_known = true;
      }
    }
    CHECK(is_known);
    printf("%s: done\n", arguments[index]);
  }
  return 0;
}
