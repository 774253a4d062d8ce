/* Mistakes that sanitizers have to find: where they do not, they are not at work. */
#include "driver.h"

#include <stdlib.h>

static int shared;

static void count(int number, void *argument) {
  (void)number;
  (void)argument;
  ++shared;
}

void make_race(void) {
  on_threads(count, NULL);
}

void make_leak(void) {
  TRITONSERVER_Error *volatile lost = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "never deleted");
  lost = NULL;
  CHECK(lost == NULL);
}

/* In the library, which is told that there are more bytes than there are. */
void make_overrun(void) {
  TRITONSERVER_Message *message;
  char *text = calloc(10, 1);
  OK(TRITONSERVER_MessageNewFromSerializedJson(&message, text, 20));
  OK(TRITONSERVER_MessageDelete(message));
  free(text);
}
