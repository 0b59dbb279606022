// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/election.hpp"

#include "base/fields.hpp"
#include "base/hmac.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/rendezvous.hpp"

#include <algorithm>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

constexpr const char* list_key = "launchers";
constexpr std::string_view list_head = "launchers1 ";
constexpr std::size_t run_id_bytes = 8;

}  // namespace

launcher_entry* launcher_list::find(const std::string& id) {
  const auto at = std::ranges::find(launchers, id, &launcher_entry::id);
  return at == launchers.end() ? nullptr : &*at;
}

const launcher_entry& launcher_list::next() const {
  const launcher_entry* oldest = nullptr;
  const launcher_entry* with_ranks = nullptr;
  for (const launcher_entry& each : launchers) {
    if (!each.lives()) continue;
    if (each.id == coordinator) return each;
    if (oldest == nullptr) oldest = &each;
    if (with_ranks == nullptr && each.runs()) with_ranks = &each;
  }
  return with_ranks != nullptr ? *with_ranks : *oldest;
}

task<launcher_list> election::read(std::string* text, core::time_point deadline) {
  constexpr const char* a_list = "a list of launchers";
  *text = co_await propose(at_, list_key, "", core::time_left(deadline));
  if (text->empty()) co_return launcher_list();
  if (!text->starts_with(list_head)) throw_malformed(a_list);
  launcher_list list = from_store<launcher_list>(std::string_view(*text).substr(list_head.size()), a_list);
  co_return std::move(list);
}

task<bool> election::write(std::string read, launcher_list changed, core::time_point deadline) {
  std::string text = std::string(list_head) + base::to_bytes(changed);
  if (text == read) co_return true;
  const store_exchange done =
      co_await at_.compare_exchange(list_key, std::move(read), std::move(text), core::time_left(deadline));
  co_return done.exchanged;
}

task<launcher_list> election::look(std::set<std::string> dead, core::time_point deadline) {
  for (;;) {
    std::string text;
    launcher_list list = co_await read(&text, deadline);
    if (left_) throw error(errc::cancelled, "this launcher has left the list");
    launcher_entry mine = own_;
    if (list.run != run_) mine.ranks = 0;
    if (launcher_entry* const known = list.find(own_.id))
      *known = mine;
    else
      list.launchers.push_back(mine);
    for (launcher_entry& each : list.launchers) {
      if (each.id == own_.id) continue;
      if (dead.contains(each.id)) {
        each.is = launcher_entry::state::dead;
      } else if (each.lives()) {
        const std::string held = co_await propose(at_, life_key_of(each.id), "", core::time_left(deadline));
        if (held.empty()) each.is = launcher_entry::state::silent;
      }
    }
    if (list.next().id == own_.id && list.coordinator != own_.id) {
      list.coordinator = own_.id;
      if (!list.next().runs()) {
        list.run = base::random_hex(run_id_bytes);
        std::erase_if(list.launchers, [](const launcher_entry& each) { return !each.lives(); });
      }
    }
    const bool written = co_await write(std::move(text), list, deadline);
    if (written) co_return std::move(list);
  }
}

task<> election::runs(std::string run, int first_rank, int ranks, core::time_point deadline) {
  run_ = std::move(run);
  own_.first_rank = first_rank;
  own_.ranks = ranks;
  for (bool written = false; !written;) {
    std::string text;
    launcher_list list = co_await read(&text, deadline);
    if (launcher_entry* const own = list.find(own_.id)) *own = own_;
    written = co_await write(std::move(text), std::move(list), deadline);
  }
}

task<> election::leave(core::time_point deadline) {
  left_ = true;
  for (bool written = false; !written;) {
    std::string text;
    launcher_list list = co_await read(&text, deadline);
    std::erase_if(list.launchers, [this](const launcher_entry& each) { return each.id == own_.id; });
    written = co_await write(std::move(text), std::move(list), deadline);
  }
}

}  // namespace tutti::bootstrap
