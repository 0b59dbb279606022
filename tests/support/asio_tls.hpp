// SPDX-License-Identifier: Apache-2.0
// TLS streams of Asio, if OpenSSL is installed.
#pragma once

#ifdef TUTTI_HAVE_TLS
#include <tutti/detail/asio_config.hpp>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#ifdef BOOST_ASIO_SEPARATE_COMPILATION  // by cmake/compiler.cmake
#include <boost/asio/ssl/impl/src.hpp>
#endif
#endif
