// SPDX-License-Identifier: Apache-2.0
#include "oneccl/oneccl_api.hpp"

#include <fmt/format.h>

namespace tutti::oneccl::abi {
namespace {

std::unique_ptr<const table> open(const std::string& told) {
  gpu::detail::library in(
      told, {"libccl.so.2"},
      "install oneCCL (oneccl and oneccl-cpu of PyPI; ./run setup-oneccl), or say where it is with "
      "TUTTI_ONECCL_LIBRARY; tutti::communicator needs none for memory of devices (gpu::open)");
  auto calls = std::make_unique<table>();
  TUTTI_ONECCL_CALLS(TUTTI_REQUIRE_CALL)
  in.require("onecclGetErrorString", calls->error_string);
  in.find("onecclGetLastError", calls->last_error);
  if (!in.missing.empty())
    throw error(errc::not_supported,
                fmt::format("{} is no oneCCL 2021.17 or later: it lacks {}", in.name, in.missing));
  calls->get_version(&calls->version);
  return calls;
}

}  // namespace

std::string table::explain(result code, communicator* c) const {
  return gpu::vendor_abi::explain("oneCCL", version, code, error_string(code),
                                  last_error == nullptr || c == nullptr ? nullptr : last_error(c));
}

const gpu::detail::opened_library<table>& load() {
  return gpu::detail::load_library("TUTTI_ONECCL_LIBRARY", &open);
}

}  // namespace tutti::oneccl::abi
