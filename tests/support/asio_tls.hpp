// SPDX-License-Identifier: Apache-2.0
// TLS streams of Asio, if OpenSSL is installed.
#pragma once

#ifdef TUTTI_HAVE_TLS
#include <tutti/detail/asio_config.hpp>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#endif
