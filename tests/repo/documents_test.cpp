// SPDX-License-Identifier: Apache-2.0
// Rules for the Markdown files: links have targets, the front page is short, and its code is compiled.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t most_lines = 160, most_columns = 100;

std::vector<std::string> documents() {
  std::vector<std::string> found;
  for (const repo::fs::directory_entry& entry : repo::fs::directory_iterator(repo::root()))
    if (entry.path().extension() == ".md") found.push_back(entry.path().filename().string());
  for (const char* tree : {"deploy", "docs", "examples", "gpu", "include", "perf", "src", "tests"})
    for (const std::string& path : repo::files_below(tree, {".md"})) found.push_back(path);
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream from(text);
  for (std::string line; std::getline(from, line);) lines.push_back(line);
  return lines;
}

bool is_fence(const std::string& line) { return line.rfind("```", 0) == 0; }

// The text with empty lines for code blocks, so that line numbers stay.
std::vector<std::string> prose_of(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  bool code = false;
  for (std::string& line : lines) {
    const bool fence = is_fence(line);
    if (fence) code = !code;
    if (code || fence) line.clear();
  }
  return lines;
}

// Counts columns, not bytes: continuation bytes of UTF-8 do not count.
std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string at(const std::string& path, std::size_t line) {
  return path + ":" + std::to_string(line + 1) + ": ";
}

// The targets of [text](target) and ![text](target) in one line.
std::vector<std::string> links_in(const std::string& line) {
  static const std::regex pattern(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> found;
  for (std::sregex_iterator i(line.begin(), line.end(), pattern), end; i != end; ++i)
    found.push_back((*i)[1]);
  return found;
}

// GitHub's anchor for a heading.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading.substr(heading.find_first_not_of("# "))) {
    if (c == ' ') anchor += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return anchor;
}

bool has_anchor(const std::string& path, const std::string& anchor) {
  const std::vector<std::string> lines = prose_of(repo::read(path));
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.rfind('#', 0) == 0 && anchor_of(line) == anchor;
  });
}

bool leads_somewhere(const std::string& document, const std::string& target) {
  const std::size_t hash = target.find('#');
  const std::string file = target.substr(0, hash);
  const repo::fs::path path = file.empty()
                                  ? repo::fs::path(document)
                                  : (repo::fs::path(document).parent_path() / file).lexically_normal();
  if (!repo::fs::exists(repo::root() / path)) return false;
  return hash == target.npos || has_anchor(path.generic_string(), target.substr(hash + 1));
}

struct code_block {
  std::string language, source;  // of `<!-- source -->` in the line above the block; empty without it
  std::size_t line = 0;
  std::vector<std::string> code;
};

std::vector<code_block> code_blocks_of(const std::string& text) {
  static const std::regex marker("<!-- (\\S+) -->");
  const std::vector<std::string> lines = lines_of(text);
  std::vector<code_block> blocks;
  bool inside = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_fence(lines[i])) {
      inside = !inside;
      if (!inside) continue;
      std::smatch match;
      const bool marked = i > 0 && std::regex_match(lines[i - 1], match, marker);
      blocks.push_back({lines[i].substr(3), marked ? match[1].str() : "", i, {}});
    } else if (inside) {
      blocks.back().code.push_back(lines[i]);
    }
  }
  return blocks;
}

// Whether the lines occur in the text in sequence, with the same additional indentation.
bool stands_in(const std::vector<std::string>& code, const std::vector<std::string>& text) {
  for (std::size_t first = 0; first + code.size() <= text.size(); ++first) {
    const std::size_t indentation = std::min(text[first].find_first_not_of(' '), text[first].size());
    const auto same = [&](const std::string& there, const std::string& here) {
      return here.empty() ? there.empty() : there == std::string(indentation, ' ') + here;
    };
    if (std::equal(code.begin(), code.end(), text.begin() + static_cast<std::ptrdiff_t>(first),
                   [&](const std::string& here, const std::string& there) { return same(there, here); }))
      return true;
  }
  return false;
}

}  // namespace

TEST_CASE("relative links of the documents have a target") {
  std::vector<std::string> broken;
  for (const std::string& document : documents()) {
    const std::vector<std::string> lines = prose_of(repo::read(document));
    for (std::size_t i = 0; i < lines.size(); ++i)
      for (const std::string& target : links_in(lines[i]))
        if (target.find("://") == target.npos && !leads_somewhere(document, target))
          broken.push_back(at(document, i) + target);
  }
  repo::check_none(broken, "links to what is not there:");
}

TEST_CASE("the front page has at most 160 lines of at most 100 columns") {
  const std::vector<std::string> lines = lines_of(repo::read("README.md"));
  CHECK(lines.size() <= most_lines);
  std::vector<std::string> wide;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (columns_of(lines[i]) > most_columns) wide.push_back(at("README.md", i) + lines[i]);
  repo::check_none(wide, "lines of more than 100 columns:");
}

TEST_CASE("the pages of docs/ and deploy/ wrap at 100 columns, except tables and code") {
  std::vector<std::string> documents = repo::files_below("docs", {".md"}), wide;
  documents.push_back("deploy/README.md");
  for (const std::string& document : documents) {
    const std::vector<std::string> lines = prose_of(repo::read(document));
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].rfind('|', 0) != 0 && columns_of(lines[i]) > most_columns)
        wide.push_back(at(document, i) + lines[i]);
  }
  repo::check_none(wide, "lines of more than 100 columns:");
}

TEST_CASE("every page of docs/ is in its index") {
  const std::string index = repo::read("docs/README.md");
  std::vector<std::string> missing;
  for (const std::string& document : repo::files_below("docs", {".md"}))
    if (document != "docs/README.md" && index.find("(" + document.substr(5) + ")") == index.npos)
      missing.push_back(document);
  repo::check_none(missing, "pages that docs/README.md does not name:");
}

TEST_CASE("code of the front page and of docs/ is part of a file that is built") {
  std::vector<std::string> documents = repo::files_below("docs", {".md"}), strays;
  for (const char* document : {"README.md", "deploy/README.md", "gpu/README.md", "perf/README.md"})
    documents.push_back(document);
  // CUDA's launch syntax, which no compiler here accepts.
  const auto is_cuda = [](const code_block& block) {
    return std::any_of(block.code.begin(), block.code.end(),
                       [](const std::string& line) { return line.find("<<<") != line.npos; });
  };
  for (const std::string& document : documents)
    for (const code_block& block : code_blocks_of(repo::read(document))) {
      if ((block.language != "cpp" && block.language != "cmake") || is_cuda(block)) continue;
      if (block.source.empty())
        strays.push_back(at(document, block.line) +
                         "no <!-- file --> in the line above says where it is from");
      else if (!stands_in(block.code, lines_of(repo::read(block.source))))
        strays.push_back(at(document, block.line) + "is not, line by line, in " + block.source);
    }
  repo::check_none(strays, "code that nothing compiles:");
}

TEST_CASE("every block has a language: code, a command line (sh), or output (text)") {
  std::vector<std::string> documents = repo::files_below("docs", {".md"}), bare;
  for (const char* document : {"README.md", "deploy/README.md", "gpu/README.md", "perf/README.md"})
    documents.push_back(document);
  for (const std::string& document : documents)
    for (const code_block& block : code_blocks_of(repo::read(document)))
      if (block.language.empty()) bare.push_back(at(document, block.line));
  repo::check_none(bare, "blocks without a language:");
}

TEST_CASE("the tutorial shows code of each of its programs") {
  std::vector<std::string> shown, missing;
  for (const std::string& page : repo::files_below("docs/tutorial", {".md"}))
    for (const code_block& block : code_blocks_of(repo::read(page))) shown.push_back(block.source);
  for (const std::string& program : repo::files_below("examples/tutorial", {".cpp"}))
    if (std::find(shown.begin(), shown.end(), program) == shown.end()) missing.push_back(program);
  repo::check_none(missing, "programs that docs/tutorial does not show:");
}

TEST_CASE("documents are parsed like on GitHub") {
  CHECK(columns_of("a → b") == 5);
  CHECK(anchor_of("## When a job hangs") == "when-a-job-hangs");
  CHECK(anchor_of("# `./run test`, twice") == "run-test-twice");
  CHECK(links_in("[a](b.md) and ![c](d.svg#e)") == std::vector<std::string>{"b.md", "d.svg#e"});
  CHECK(prose_of("a\n```\n[x](y)\n```\nb") == std::vector<std::string>{"a", "", "", "", "b"});
  const std::vector<std::string> text{"{", "  if (x) {", "    y();", "", "  }", "}"};
  CHECK(stands_in({"if (x) {", "  y();", "", "}"}, text));
  CHECK_FALSE(stands_in({"if (x) {", "  z();"}, text));
  CHECK_FALSE(stands_in({"y();", "}"}, text));
}
