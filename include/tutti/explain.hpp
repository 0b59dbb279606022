// SPDX-License-Identifier: Apache-2.0
// explain: tells why a program makes no progress.
#pragma once

#include <tutti/communicator.hpp>

#include <string>

namespace tutti {

// Returns a text that says who waits for whom. For each rank on this host it says what the rank waits for,
// since when, and from which line of the program; or that it computes, is stopped or has gone. It also names
// ranks that have not called a collective, and ranks that wait for each other in a circle.
// Call it on any thread at any time. It sends no messages: it reads the last operations that the ranks
// recorded in memory of tutti-run or this process, and so covers no ranks on other hosts, or that others started.
// Cost: about 0.1 ms per rank.
std::string explain(const communicator& c);

// Installs a handler of SIGUSR1 that prints what each rank of this process waits for; under tutti-run, the launcher
// then explains the whole job. Does nothing where the program has a handler. tutti::run and the ranks of tutti-run
// call it; a runtime by itself installs no handler.
void explain_at_signal() noexcept;

}  // namespace tutti
