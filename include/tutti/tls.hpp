// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 for connections that cross networks which others can listen to or write on.
//
// Both sides show certificates, and the proof of the job's secret that begins every connection covers the TLS
// session (RFC 9266's idea, by an exporter of its own): who sits in between, with whatever certificates, ends
// in errc::unauthorized. So no certificates are needed for protection; without them each process makes itself
// one.
#pragma once

#include <memory>
#include <string>

namespace tutti {

namespace core {
class tls_context;
}

// Shared by all connections of a process. Null: no TLS.
using tls_identity = std::shared_ptr<const core::tls_context>;

// A process's own, by files in PEM: its certificate (with those that lead to the authority, if there are
// any), its key, and the authorities that the others' certificates must lead to. All three or none. The one
// certificate is shown when connecting and when accepting: an extended key usage, if it has one, allows both.
// When it names ranks ("URI:tutti:rank:3" among its alternative names), it is good for those ranks only.
// Throws errc::invalid_argument, naming the file and what is wrong with it.
tls_identity make_tls_identity(const std::string& certificate = {}, const std::string& key = {},
                               const std::string& authority = {});

}  // namespace tutti
