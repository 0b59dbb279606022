// SPDX-License-Identifier: Apache-2.0
// g++ 12 miscompiles some forms of coroutines without a warning: co_await in a condition may crash, in ?: it
// destroys twice. Later versions leak structured bindings of a co_await. This test keeps our code free of
// them.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cctype>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct finding {
  int line;
  std::string rule;
};

// The position after the parenthesis that closes the one at `open`.
std::size_t past_closing(std::string_view code, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < code.size(); ++i) {
    if (code[i] == '(') ++depth;
    if (code[i] == ')' && --depth == 0) return i + 1;
  }
  return code.size();
}

bool is_word_at(std::string_view code, std::size_t at, std::string_view word) {
  const auto part_of_word = [&](std::size_t i) {
    return i < code.size() && (std::isalnum(static_cast<unsigned char>(code[i])) != 0 || code[i] == '_');
  };
  return code.substr(at, word.size()) == word && (at == 0 || !part_of_word(at - 1)) &&
         !part_of_word(at + word.size());
}

void find_awaits_in_conditions(std::string_view code, std::vector<finding>& found) {
  for (std::size_t at = 0; at < code.size(); ++at)
    for (const std::string_view keyword : {"if", "while", "switch", "for"}) {
      if (!is_word_at(code, at, keyword)) continue;
      std::size_t open = code.find_first_not_of(" \t\n", at + keyword.size());
      if (open != code.npos && is_word_at(code, open, "constexpr")) open = code.find('(', open);
      if (open == code.npos || code[open] != '(') continue;
      if (code.substr(open, past_closing(code, open) - open).find("co_await") != code.npos)
        found.push_back({repo::line_of(code, at), "co_await in the condition of " + std::string(keyword) +
                                                      ": name the result first, then test the name"});
    }
}

// A co_await is an operand of ?: if no parenthesis around the `?` separates them. In `co_await f(a ? b : c)`
// the ?: is only an argument.
void find_awaits_in_ternaries(std::string_view code, std::vector<finding>& found) {
  struct mark {
    std::size_t position;
    int depth;
  };
  const auto lowest_between = [&](mark a, mark b) {
    if (a.position > b.position) std::swap(a, b);
    int depth = a.depth, lowest = a.depth;
    for (std::size_t i = a.position; i < b.position; ++i) {
      if (code[i] == '(' || code[i] == '[') ++depth;
      if (code[i] == ')' || code[i] == ']') lowest = std::min(lowest, --depth);
    }
    return lowest;
  };

  std::vector<mark> awaits, choices;  // of the current statement
  int depth = 0;
  for (std::size_t i = 0; i <= code.size(); ++i) {
    const char c = i < code.size() ? code[i] : ';';
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == '?') choices.push_back({i, depth});
    if (is_word_at(code, i, "co_await")) awaits.push_back({i, depth});
    if (c != ';' && c != '{' && c != '}') continue;
    for (const mark& await : awaits)
      if (std::any_of(choices.begin(), choices.end(),
                      [&](const mark& choice) { return lowest_between(await, choice) >= choice.depth; }))
        found.push_back({repo::line_of(code, await.position), "co_await within ?: : write an if"});
    awaits.clear();
    choices.clear();
    depth = 0;
  }
}

void find_bound_awaits(std::string_view code, std::vector<finding>& found) {
  static const std::regex pattern(R"(auto\s*&{0,2}\s*\[[^\]]*\]\s*=\s*co_await)");
  const std::string text(code);
  for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i)
    found.push_back(
        {repo::line_of(code, static_cast<std::size_t>(i->position())),
         "structured binding of a co_await: name the result, then bind to the name by reference"});
}

std::vector<finding> lint(std::string_view text) {
  static const std::regex definition(R"(operator\s+co_await)");
  const std::string code = std::regex_replace(repo::code_only(text), definition, "operator await");
  std::vector<finding> found;
  find_awaits_in_conditions(code, found);
  find_awaits_in_ternaries(code, found);
  find_bound_awaits(code, found);
  return found;
}

}  // namespace

TEST_CASE("no coroutine has a form that g++ miscompiles") {
  std::vector<std::string> findings;
  for (const char* tree : {"include", "src", "tests", "examples", "perf", "gpu"})
    for (const std::string& path : repo::files_below(tree, {".cpp", ".hpp"}))
      for (const finding& f : lint(repo::read(path)))
        findings.push_back(path + ":" + std::to_string(f.line) + ": " + f.rule);
  repo::check_none(findings, "dangerous on g++ (CONTRIBUTING.md, coroutines):");
}

TEST_CASE("the lint finds each form") {
  for (const char* bad : {
           "if (co_await x) g();",
           "if (ready && (co_await x)) g();",
           "if constexpr (true) { while (\n co_await next()) {} }",
           "do { g(); } while (co_await more());",
           "switch (co_await kind()) {}",
           "for (auto& item : co_await items()) {}",
           "auto v = b ? co_await x : y;",
           "co_return co_await x\n  ? 1 : 2;",
           "const int k = (co_await x) > 1 ? 1 : 2;",
           "f(a ? b : g(co_await x));",
           "f((a ? (co_await b) : c), d);",
           "auto [a, b] = co_await x;",
           "const auto& [a, b] = co_await x;",
       }) {
    CAPTURE(bad);
    CHECK_FALSE(lint(bad).empty());
  }
}

TEST_CASE("the lint accepts the safe forms") {
  for (const char* good : {
           "const bool ok = co_await x; if (ok) g();",
           "if (ok) co_await x;",
           "if constexpr (requires { f(a).operator co_await(); }) return 1;",
           "co_await f(a ? b : c);",
           "const int k = co_await f(x, (a ? b : c), y);",
           "while (n-- > 0) { co_await step(n ); }",
           "for (int i = 0; i < n; ++i) co_await step(i);",
           "const int k = a ? 1 : 2; co_await step(k);",
           "// if (co_await x)\n/* while (co_await y) */ co_await z;",
           "puts(\"if (co_await x) ?\"); co_await z;",
           "notify(x) (co_await y);",
           "const auto pair = co_await x; const auto& [a, b] = pair;",
       }) {
    CAPTURE(good);
    CHECK(lint(good).empty());
  }
}

TEST_CASE("comments and literals do not count as code, numbers with separators do") {
  CHECK(repo::code_only("a \"b;\" c") == "a      c");
  CHECK(repo::code_only("1'000 + 'x' // y\nz") == "1'000 +         \nz");
  CHECK(repo::code_only("R\"(a \" b)\" c") == std::string(10, ' ') + " c");
}
