// SPDX-License-Identifier: Apache-2.0
#include "oneccl/oneccl_api.hpp"

#include "device/library.hpp"

#include <fmt/format.h>

#include <memory>

namespace tutti::oneccl::abi {
namespace {

using gpu::detail::find_call;
using gpu::detail::find_required_call;
using gpu::detail::reason_of_loader;
using opened = gpu::detail::opened_library<table>;

opened open(const std::string& told) {
  opened o;
  void* const library = gpu::detail::open_library(told, {"libccl.so.2"});
  if (library == nullptr) {
    o.why = fmt::format(
        "{} cannot be opened ({}): install oneCCL (oneccl and oneccl-cpu of PyPI; ./run setup-oneccl), or "
        "say where "
        "it is with TUTTI_ONECCL_LIBRARY; tutti::communicator needs none for memory of devices (gpu::open)",
        told.empty() ? "libccl.so.2" : told, reason_of_loader());
    return o;
  }
  auto calls = std::make_unique<table>();
  std::string missing;
#define TUTTI_ONECCL_FIND(member, symbol, parameters) \
  find_required_call(library, #symbol, calls->member, missing);
  TUTTI_ONECCL_CALLS(TUTTI_ONECCL_FIND)
#undef TUTTI_ONECCL_FIND
  find_required_call(library, "onecclGetErrorString", calls->error_string, missing);
  if (!missing.empty()) {
    o.why = fmt::format("{} is no oneCCL 2021.17 or later: it lacks {}", told.empty() ? "libccl.so.2" : told,
                        missing);
    return o;
  }
  find_call(library, "onecclGetLastError", calls->last_error);
  calls->get_version(&calls->version);
  o.calls = std::move(calls);
  return o;
}

}  // namespace

std::string table::explain(result code, communicator* c) const {
  return gpu::vendor_abi::explain("oneCCL", version, code, error_string(code),
                                  last_error == nullptr || c == nullptr ? nullptr : last_error(c));
}

const table* load(std::string& why) {
  return gpu::detail::load_library("TUTTI_ONECCL_LIBRARY", "", why, &open);
}

}  // namespace tutti::oneccl::abi
