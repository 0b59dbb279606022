// SPDX-License-Identifier: Apache-2.0
// Names of operations and algorithms, for errors and tables.
#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>

namespace tutti {

const char* name_of(algorithm a) noexcept {
  switch (a) {
    case algorithm::automatic:
      return "automatic";
    case algorithm::binomial:
      return "binomial";
    case algorithm::bruck:
      return "bruck";
    case algorithm::direct:
      return "direct";
    case algorithm::dissemination:
      return "dissemination";
    case algorithm::linear:
      return "linear";
    case algorithm::pairwise:
      return "pairwise";
    case algorithm::rabenseifner:
      return "rabenseifner";
    case algorithm::recursive_doubling:
      return "recursive_doubling";
    case algorithm::ring:
      return "ring";
    case algorithm::scatter_all_gather:
      return "scatter_all_gather";
    case algorithm::shared_memory:
      return "shared_memory";
    case algorithm::hierarchical:
      return "hierarchical";
    case algorithm::hierarchical_split:
      return "hierarchical_split";
  }
  return "?";
}

namespace detail {

const char* name_of(operation_kind k) noexcept {
  using kind = operation_kind;
  switch (k) {
    case kind::send:
      return "send";
    case kind::receive:
      return "recv";
    case kind::probe:
      return "probe";
    case kind::barrier:
      return "barrier";
    case kind::broadcast:
      return "broadcast";
    case kind::reduce:
      return "reduce";
    case kind::all_reduce:
      return "all_reduce";
    case kind::scatter:
      return "scatter";
    case kind::gather:
      return "gather";
    case kind::all_gather:
      return "all_gather";
    case kind::reduce_scatter:
      return "reduce_scatter";
    case kind::all_to_all:
      return "all_to_all";
    case kind::scan:
      return "scan";
    case kind::exclusive_scan:
      return "exclusive_scan";
    case kind::scatter_v:
      return "scatter_v";
    case kind::gather_v:
      return "gather_v";
    case kind::all_gather_v:
      return "all_gather_v";
    case kind::reduce_scatter_v:
      return "reduce_scatter_v";
    case kind::all_to_all_v:
      return "all_to_all_v";
    case kind::group:
      return "group";
    case kind::split:
      return "split";
    case kind::duplicate:
      return "duplicate";
    case kind::shrink:
      return "shrink";
  }
  return "?";
}

}  // namespace detail
}  // namespace tutti
