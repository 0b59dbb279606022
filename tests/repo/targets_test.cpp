// SPDX-License-Identifier: Apache-2.0
// The header of a target includes all of the target's headers. The runtime's includes no other target's.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <set>
#include <string>
#include <vector>

namespace {

// Adds the public headers that a header includes, and itself, as paths in the tree.
void add_what_it_includes(const std::string& path, std::set<std::string>& found) {
  if (!found.insert(path).second) return;
  for (const repo::include_directive& include : repo::includes_of(repo::read(path))) {
    for (const std::string folder : {"include/", "gpu/include/"})
      if (include.name.starts_with("tutti/") && repo::fs::exists(repo::root() / (folder + include.name)))
        add_what_it_includes(folder + include.name, found);
  }
}

std::set<std::string> included_by(const std::string& path) {
  std::set<std::string> found;
  add_what_it_includes(path, found);
  return found;
}

// The target of a public header: the header's name without "tutti/" and ".hpp".
std::string target_of(const std::string& path) {
  if (path.starts_with("gpu/")) return "gpu";
  for (const std::string target : {"train", "track", "sim", "torch"})
    if (path == "include/tutti/" + target + ".hpp" || path.starts_with("include/tutti/" + target + "/"))
      return target;
  return "tutti";
}

std::vector<std::string> public_headers() {
  std::vector<std::string> headers = repo::files_below("include", {".hpp"});
  for (const std::string& path : repo::files_below("gpu/include", {".hpp"})) headers.push_back(path);
  return headers;
}

}  // namespace

TEST_CASE("the header of a target includes all headers of that target") {
  std::vector<std::string> missing;
  for (const std::string target : {"tutti", "train", "track", "sim", "torch", "gpu"}) {
    const std::string umbrella =
        (target == "gpu" ? "gpu/include/tutti/" : "include/tutti/") + target + ".hpp";
    const std::set<std::string> included = included_by(umbrella);
    for (const std::string& header : public_headers()) {
      // It includes SYCL's own headers. Users include neither detail/ nor extend/.
      if (header == "gpu/include/tutti/sycl.hpp" || header.starts_with("include/tutti/detail/") ||
          header.starts_with("include/tutti/extend/"))
        continue;
      if (target_of(header) == target && !included.contains(header))
        missing.push_back(umbrella + ": " + header);
    }
  }
  repo::check_none(missing, "headers that their target's header does not include:");
}

TEST_CASE("headers of the runtime include none of the libraries beside it") {
  std::vector<std::string> found;
  for (const std::string& header : public_headers()) {
    if (target_of(header) != "tutti") continue;
    for (const std::string& other : included_by(header))
      if (target_of(other) != "tutti") found.push_back(header + ": " + other);
  }
  repo::check_none(found, "a program that wants the runtime reads more than the runtime:");
}

TEST_CASE("indirectly included headers are found") {
  CHECK(included_by("include/tutti/tutti.hpp").contains("include/tutti/extend/operation_kind.hpp"));
  CHECK(target_of("include/tutti/train/shuffle.hpp") == "train");
  CHECK(target_of("include/tutti/trace.hpp") == "tutti");
}
