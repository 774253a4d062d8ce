#include "agents/model.h"

#include <filesystem>
#include <utility>

namespace fs = std::filesystem;

namespace {

const char* const kActions[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"};

// Also what was copied from a place that may only be read.
void remove_all(const fs::path& directory) {
  fs::permissions(directory, fs::perms::owner_all, fs::perm_options::add);
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_directory() && !entry.is_symlink()) {
      fs::permissions(entry.path(), fs::perms::owner_all, fs::perm_options::add);
    }
  }
  fs::remove_all(directory);
}

}  // namespace

TRITONREPOAGENT_AgentModel::TRITONREPOAGENT_AgentModel(
    const char* location, const char* its_config, const char* its_room, const char* its_why_no_room)
    : config(its_config),
      room(its_room == nullptr ? "" : its_room),
      why_no_room(its_why_no_room == nullptr ? "" : its_why_no_room),
      locations{location} {}

TRITONSERVER_Error* TRITONREPOAGENT_AgentModel::acquire(const char** location) {
  if (room.empty()) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, why_no_room.c_str());
  }
  const std::lock_guard<std::mutex> lock(mutex);
  if (!has_acquired) {
    acquired.push_back(room + "/" + std::to_string(acquired.size()));
    fs::create_directory(acquired.back());
    fs::permissions(acquired.back(), fs::perms::owner_all);
    has_acquired = true;
  }
  *location = acquired.back().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_AgentModel::release() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!has_acquired) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "No mutable location to be deleted");
  }
  has_acquired = false;
  if (fs::exists(acquired.back())) {
    remove_all(acquired.back());
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_AgentModel::update(
    TRITONREPOAGENT_ArtifactType its_type, const char* location) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (action != TRITONREPOAGENT_ACTION_LOAD) {
    const std::string current = action ? std::string("TRITONREPOAGENT_ACTION_") + kActions[*action] : "not set";
    return tritonpy::invalid(
        "location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is " + current);
  }
  type = its_type;
  locations.emplace_back(location);
  return nullptr;
}

const char* TRITONREPOAGENT_AgentModel::location(TRITONREPOAGENT_ArtifactType* its_type) {
  const std::lock_guard<std::mutex> lock(mutex);
  *its_type = type;
  return locations.back().c_str();
}

void TRITONREPOAGENT_AgentModel::begin(TRITONREPOAGENT_ActionType its_action) {
  const std::lock_guard<std::mutex> lock(mutex);
  action = its_action;
}
