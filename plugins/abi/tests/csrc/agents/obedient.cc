// Writes every call to the file that AGENTS_LOG names, as "NAME PID STEP TAG", and does what it is told: in the
// step that a model's parameter `in` names, what `do` says, with `with`. For the steps without a model
// AGENT_IN, AGENT_DO and AGENT_WITH say so.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "tritonpy/repo_agent.h"

#ifndef NAME
#define NAME "obedient"
#endif

namespace {

using Error = TRITONSERVER_Error;
using Agent = TRITONREPOAGENT_Agent;
using Model = TRITONREPOAGENT_AgentModel;

const char* const kActions[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"};

const std::pair<char, TRITONSERVER_LogLevel> kLevels[] = {
    {'I', TRITONSERVER_LOG_INFO},
    {'W', TRITONSERVER_LOG_WARN},
    {'E', TRITONSERVER_LOG_ERROR},
    {'V', TRITONSERVER_LOG_VERBOSE}};

void note(const std::string& what) {
  const char* path = std::getenv("AGENTS_LOG");
  if (path == nullptr) {
    return;
  }
  std::FILE* log = std::fopen(path, "a");
  std::fprintf(log, "%s %d %s\n", NAME, static_cast<int>(getpid()), what.c_str());
  std::fclose(log);
}

std::string parameter(Agent* agent, Model* model, const char* wanted) {
  uint32_t count = 0;
  TRITONREPOAGENT_ModelParameterCount(agent, model, &count);
  for (uint32_t i = 0; i < count; ++i) {
    const char *name = nullptr, *value = nullptr;
    TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value);
    if (std::strcmp(name, wanted) == 0) {
      return value;
    }
  }
  return "";
}

void wait_for(const std::string& file) {
  struct stat found;
  while (stat(file.c_str(), &found) != 0) {
    usleep(1000);
  }
}

// Has a program of its own run on, which holds all that this process has open.
void leave_a_program_behind() {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) {
      pause();
    }
  }
  note("left " + std::to_string(child));
}

Error* acquire_read_only(Agent* agent, Model* model) {
  const char* location = nullptr;
  Error* error = TRITONREPOAGENT_ModelRepositoryLocationAcquire(
      agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &location);
  if (error != nullptr) {
    return error;
  }
  note(std::string("acquired ") + location);
  const std::string inner = std::string(location) + "/inner";
  mkdir(inner.c_str(), 0700);
  std::fclose(std::fopen((inner + "/file").c_str(), "w"));
  chmod(inner.c_str(), 0500);
  return nullptr;
}

// Metrics are there until the process ends.
void count(const std::string& label) {
  TRITONSERVER_MetricFamily* family = nullptr;
  TRITONSERVER_Metric* metric = nullptr;
  TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_COUNTER, "obedient_deeds", "What was done");
  const TRITONSERVER_Parameter* labels[] = {
      TRITONSERVER_ParameterNew("of", TRITONSERVER_PARAMETER_STRING, label.c_str())};
  TRITONSERVER_MetricNew(&metric, family, labels, 1);
  TRITONSERVER_MetricIncrement(metric, 1);
}

Error* carry_out(const std::string& deed, const std::string& with, Agent* agent, Model* model) {
  if (deed == "crash") {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
  } else if (deed == "crash while it waits") {
    wait_for(with);
    raise(SIGSEGV);
  } else if (deed == "exit") {
    std::exit(3);
  } else if (deed == "abort") {
    std::abort();
  } else if (deed == "throw") {
    throw std::runtime_error("a limit of 23 digits");
  } else if (deed == "throw a number") {
    throw 23;
  } else if (deed == "refuse") {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, with.c_str());
  } else if (deed == "wait") {
    wait_for(with);
  } else if (deed == "leave a program behind") {
    leave_a_program_behind();
  } else if (deed == "acquire") {
    return acquire_read_only(agent, model);
  } else if (deed == "acquire and release") {
    Error* error = acquire_read_only(agent, model);
    return error != nullptr ? error : TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, "");
  } else if (deed == "print") {
    std::printf("printed: %s\nand\r\n", with.c_str());
    std::fprintf(stderr, "complained: %s", with.c_str());
  } else if (deed == "print much") {
    for (int i = 0; i < 40000; ++i) {
      std::printf("line %d of much\n", i);
    }
  } else if (deed == "note levels") {
    std::string enabled;
    for (const auto& [letter, level] : kLevels) {
      enabled += TRITONSERVER_LogIsEnabled(level) ? letter : '-';
    }
    note("levels " + enabled);
  } else if (deed == "count") {
    count(with);
  } else if (deed == "log" || deed == "wait and log") {
    if (deed == "wait and log") {
      wait_for(std::getenv("AGENT_WAITS_FOR"));
    }
    TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, "some/where.cc", 41, with.c_str());
    TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, "where.cc", 42, "two\nlines, \"quoted\" and \xff");
    TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, "where.cc", 43, "bad");
    TRITONSERVER_LogMessage(TRITONSERVER_LOG_VERBOSE, "where.cc", 44, "chatter");
  } else if (deed == "log and crash") {
    TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, "where.cc", 45, "the last words");
    raise(SIGSEGV);
  }
  return nullptr;
}

Error* step(const std::string& name, Agent* agent, Model* model) {
  note(name + (model == nullptr ? "" : " " + parameter(agent, model, "tag")));
  if (model != nullptr) {
    if (parameter(agent, model, "in") == name) {
      return carry_out(parameter(agent, model, "do"), parameter(agent, model, "with"), agent, model);
    }
  } else if (const char* where = std::getenv("AGENT_IN"); where != nullptr && name == where) {
    const char* with = std::getenv("AGENT_WITH");
    return carry_out(std::getenv("AGENT_DO"), with == nullptr ? "" : with, agent, model);
  }
  return nullptr;
}

struct Static {
  Static() { step("constructor", nullptr, nullptr); }
  ~Static() { step("destructor", nullptr, nullptr); }
};
const Static instance;

}  // namespace

Error* TRITONREPOAGENT_Initialize(Agent* agent) { return step("Initialize", agent, nullptr); }

Error* TRITONREPOAGENT_Finalize(Agent* agent) { return step("Finalize", agent, nullptr); }

Error* TRITONREPOAGENT_ModelInitialize(Agent* agent, Model* model) {
  return step("ModelInitialize", agent, model);
}

Error* TRITONREPOAGENT_ModelFinalize(Agent* agent, Model* model) { return step("ModelFinalize", agent, model); }

#ifndef WITHOUT_ACTION
Error* TRITONREPOAGENT_ModelAction(Agent* agent, Model* model, TRITONREPOAGENT_ActionType action) {
  return step(kActions[action], agent, model);
}
#endif
