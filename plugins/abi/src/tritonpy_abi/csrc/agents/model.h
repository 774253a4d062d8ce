// What a repository agent is given: itself, and a model.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/objects.h"

struct TRITONREPOAGENT_Agent {
  std::atomic<void*> state{nullptr};
};

// One load of a model as one agent sees it. An agent may use it from threads of its own, too.
struct TRITONREPOAGENT_AgentModel {
  TRITONREPOAGENT_AgentModel(
      const char* location, const char* its_config, const char* its_room, const char* its_why_no_room);

  // A new directory in the room, or the one that was acquired before.
  TRITONSERVER_Error* acquire(const char** location);
  // Removes it.
  TRITONSERVER_Error* release();
  TRITONSERVER_Error* update(TRITONREPOAGENT_ArtifactType its_type, const char* location);
  const char* location(TRITONREPOAGENT_ArtifactType* its_type);
  void begin(TRITONREPOAGENT_ActionType its_action);

  const std::string config;  // JSON
  std::vector<std::pair<std::string, std::string>> parameters;
  std::atomic<void*> state{nullptr};

 private:
  const std::string room;
  const std::string why_no_room;
  std::mutex mutex;  // guards the next
  // The last one counts. The agent may still hold the others.
  std::list<std::string> locations;
  std::list<std::string> acquired;
  bool has_acquired = false;
  TRITONREPOAGENT_ArtifactType type = TRITONREPOAGENT_ARTIFACT_FILESYSTEM;
  std::optional<TRITONREPOAGENT_ActionType> action;
};
