/* Tries, as they happen in a process of their own. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

/* What a try reports last. */
static void check_last(FILE *report, const char *words) {
  char text[2000] = "";
  rewind(report);
  const size_t size = fread(text, 1, sizeof(text) - 1, report);
  size_t last = size;
  while (last > 1 && text[last - 2] != '\0') {
    --last;
  }
  CHECK(strncmp(text + (last > 0 ? last - 1 : 0), words, strlen(words)) == 0);
  fclose(report);
}

static void try_strategy(const char *path, const char *config, const char *words) {
  FILE *report = tmpfile();
  TRITONPY_TryStrategy(fileno(report), path, "model", 1, "/models/m", config, false, "identity", "", "{}");
  check_last(report, words);
}

static void try_cache(const char *path, const char *config, const char *words) {
  FILE *report = tmpfile();
  TRITONPY_TryCache(fileno(report), path, config);
  check_last(report, words);
}

void drive_probe(void) {
  try_strategy(plugin_path(), "{}", "done");
  try_strategy(plugin_path(), "fail", "error 4 told to fail");
  try_strategy(plugin_path(), "throw", "error 1 ");
  try_strategy("/no_such_file.so", "{}", "cannot open ");
  try_cache(plugin_path(), "{}", "done");
  try_cache(plugin_path(), "fail", "error 4 told to fail");
  try_cache("/no_such_file.so", "{}", "cannot open ");
}
