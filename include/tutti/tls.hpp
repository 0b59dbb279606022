// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 for connections over networks that others can read or write.
//
// Every connection begins with a proof of the job's secret. The proof also covers the TLS session, through a
// value exported from it (the idea of RFC 9266): a man in the middle, with whatever certificates, ends in
// errc::unauthorized. So protection needs no certificates: without them each process makes its own.
#pragma once

#include <memory>
#include <string>

namespace tutti {

namespace core {
class tls_context;
}

// The TLS identity of a process, shared by all its connections. Null: no TLS.
using tls_identity = std::shared_ptr<const core::tls_context>;

// Makes the TLS identity of this process from PEM files, or a self-made one without files. The files hold its
// certificate (with intermediate ones up to the authority, if any), its key, and the authorities of the
// others' certificates. Give all three or none.
// The process connects and accepts with one certificate, so an extended key usage must allow both. A certificate
// that names ranks ("URI:tutti:rank:3" among its alternative names) is valid for those ranks only.
// Errors: throws errc::invalid_argument, naming the file and what is wrong with it.
tls_identity make_tls_identity(const std::string& certificate = {}, const std::string& key = {},
                               const std::string& authority = {});

}  // namespace tutti
