// SPDX-License-Identifier: Apache-2.0
// Why does it not go on?
#pragma once

#include <tutti/communicator.hpp>

#include <string>

namespace tutti {

// Who waits for whom, as text for a person: for each rank that runs on this host what it waits for, since
// when and from which line of the program, or that it computes, is stopped or has gone; which ranks have not
// called which collective; and ranks that wait for each other in a circle.
//
// From any thread, at any time: it asks nobody, and reads what the ranks have put on record (the last
// operations of each, in memory that tutti-run or this process holds). Ranks on other hosts, and other
// processes that tutti-run has not started, are not in it. Takes about a tenth of a millisecond for each
// rank.
std::string explain(const communicator& c);

}  // namespace tutti
