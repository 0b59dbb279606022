// SPDX-License-Identifier: Apache-2.0
// messages: receives messages of any length from any source, one after the other.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/generator.hpp>

#include <cstddef>
#include <string>
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
// Errors: those of recv; errc::truncated if a message is no whole number of elements: a receive of bytes gets it.
// Cost: one allocation per message.
template <class T>
generator<received<T>> messages(communicator world, int source = any_source, int tag = any_tag) {
  for (;;) {
    received<T> m;
    matched_message matched = co_await world.matched_probe(source, tag);
    const std::size_t bytes = matched.status().bytes;
    if (bytes % sizeof(T) != 0)
      throw error(errc::truncated, "messages: rank " + std::to_string(matched.status().source) +
                                       " has sent " + std::to_string(bytes) + " bytes, and an element has " +
                                       std::to_string(sizeof(T)) + " here: it sends another type");
    m.data.resize(bytes / sizeof(T));
    m.from = co_await matched.recv(m.data);
    co_yield std::move(m);
  }
}

}  // namespace tutti
