// SPDX-License-Identifier: Apache-2.0
// Messages of any length from any source, one after the other.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/generator.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace tutti {

template <class T>
struct received {
  status from;
  std::vector<T> data;
};

// All messages that match, in the order of their coming, each in memory of its own length: a server's loop.
//
//   auto requests = messages<float>(world);
//   for (;;) { auto m = co_await requests.next(); ... co_await world.send(answer, m->from.source); }
//
// It ends never by itself: stop awaiting it, or await next() within a timeout, which loses no message. Each
// wait is one of recv, with its errors. One allocation a message.
template <class T>
generator<received<T>> messages(communicator world, int source = any_source, int tag = any_tag) {
  for (;;) {
    received<T> m;
    m.from = co_await world.probe(source, tag);
    m.data.resize(m.from.template count<T>());
    // By what the probe saw: no other message of that rank and tag can be before it.
    m.from = co_await world.recv(m.data, m.from.source, m.from.tag);
    co_yield std::move(m);
  }
}

}  // namespace tutti
