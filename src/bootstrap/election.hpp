// SPDX-License-Identifier: Apache-2.0
// election: the launchers of a job that meet in a store which outlives each of them, and which one coordinates.
//
// One key has the list of the launchers in the order in which they came, and is changed by compare_exchange only.
// Each launcher holds a key of its own, which the store removes when the launcher has died (etcd_store::hold).
#pragma once

#include "core/wakeup.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::bootstrap {

struct launcher_entry {
  // silent: its key is gone, as it is out of reach or leaves, and its ranks may still run. dead: nothing listens at its
  // port any more.
  enum class state : std::uint8_t { lives, silent, dead };
  std::string id = {};  // different for every process
  // Where others reach it; it listens from before it is in the list to its end.
  std::string host = {};
  std::uint16_t port = 0;
  state is = state::lives;
  // It has started ranks of the run, with these numbers.
  int first_rank = -1;
  int ranks = 0;

  bool lives() const noexcept { return is == state::lives; }
  bool runs() const noexcept { return ranks > 0; }
};
constexpr auto highest(launcher_entry::state) { return launcher_entry::state::dead; }

struct launcher_list {
  std::string run;          // id of the run; a run ends with the last launcher that has started ranks of it
  std::string coordinator;  // the id of the launcher that coordinates it, or did; empty: none yet
  std::vector<launcher_entry> launchers;

  launcher_entry* find(const std::string& id);
  // The coordinator, or if that is silent or dead the launcher that is to take its place: the oldest one with ranks of
  // this run, or the oldest one, for another run.
  const launcher_entry& next() const;
};

// Calls may overlap.
class election {
 public:
  // `at` outlives this.
  election(store& at, launcher_entry own) : at_(at), own_(std::move(own)) {}

  // The key that this launcher has to hold until it is not to coordinate any more.
  std::string life_key() const { return life_key_of(own_.id); }
  // Enters this launcher in the list, unless it is there; marks those whose key is gone, and those in `dead`; and makes
  // this launcher the coordinator if it is the next(). A coordinator without ranks begins a new run. Returns the list.
  task<launcher_list> look(std::set<std::string> dead, core::time_point deadline);
  // This launcher has started ranks of this run, with these numbers.
  task<> runs(std::string run, int first_rank, int ranks, core::time_point deadline);
  // Removes this launcher from the list. Calls of look() that have not ended throw errc::cancelled.
  task<> leave(core::time_point deadline);

 private:
  static std::string life_key_of(const std::string& id) { return "launcher/" + id; }
  // Sets `text` to the list as it is in the store.
  task<launcher_list> read(std::string* text, core::time_point deadline);
  // Returns whether nobody has changed the list since it was `read`.
  task<bool> write(std::string read, launcher_list changed, core::time_point deadline);

  store& at_;
  launcher_entry own_;
  std::string run_;  // of which it has ranks
  bool left_ = false;
};

}  // namespace tutti::bootstrap
