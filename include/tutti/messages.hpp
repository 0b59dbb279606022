// SPDX-License-Identifier: Apache-2.0
// messages: receives messages of any length from any source, one after the other.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/generator.hpp>

#include <utility>
#include <vector>

namespace tutti {

// One message and its status.
template <class T>
struct received {
  status from;
  std::vector<T> data;
};

// Generates all messages that match, in order of arrival, each in memory of its own length, as for a server.
//
//   auto requests = messages<float>(world);
//   for (;;) { auto m = co_await requests.next(); ... co_await world.send(answer, m->from.source); }
//
// It does not end by itself. Stop awaiting it, or await next() within a timeout, which loses no message. A
// timeout or an error ends it: next() then returns nothing, and messages() makes another.
// Errors: those of recv.
// Cost: one allocation per message.
template <class T>
generator<received<T>> messages(communicator world, int source = any_source, int tag = any_tag) {
  for (;;) {
    received<T> m;
    matched_message matched = co_await world.matched_probe(source, tag);
    m.data.resize(matched.status().template count<T>());
    m.from = co_await matched.recv(m.data);
    co_yield std::move(m);
  }
}

}  // namespace tutti
