/* Does what its parameter says with descriptors that are not its own, and prints what looks like log lines. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tritonpy/repo_agent.h"

static void write_everywhere(const char *bytes, size_t byte_size) {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    const ssize_t written = write(descriptor, bytes, byte_size);
    (void)written;
  }
}

static void print_times(const char *text, int times) {
  for (int count = 0; count < times; ++count) {
    fputs(text, stdout);
  }
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ActionType action) {
  const char *name = NULL, *deed = NULL;
  TRITONSERVER_Error *error = TRITONREPOAGENT_ModelParameter(agent, model, 0, &name, &deed);
  if (error != NULL || action != TRITONREPOAGENT_ACTION_LOAD) {
    return error;
  }
  if (strcmp(deed, "close") == 0) {
    for (int descriptor = 3; descriptor < 1024; ++descriptor) {
      close(descriptor);
    }
  } else if (strcmp(deed, "write an object") == 0) {
    write_everywhere("\x07\0\0\0{\"a\":1}", 11);
  } else if (strcmp(deed, "write a list") == 0) {
    write_everywhere("\x02\0\0\0[]", 6);
  } else if (strcmp(deed, "write a length") == 0) {
    write_everywhere("\xff\xff\xff\xff[]", 6);
  } else if (strcmp(deed, "print digits") == 0) {
    fputs("I1122 09:00:00.000000 1 a:", stdout);
    print_times("7", 6000);
    puts("] \"x\"");
    puts("printed afterwards");
  } else if (strcmp(deed, "print half a character") == 0) {
    puts("I1122 09:00:00.000000 1 a:7777777777] \"\\ud800\"");
    puts("printed afterwards");
  } else if (strcmp(deed, "print beginnings") == 0) {
    for (int line = 0; line < 4; ++line) {
      print_times("I1122 09:00:00.000000 1 ", 2500);
      puts("");
    }
    puts("printed afterwards");
  }
  return NULL;
}
