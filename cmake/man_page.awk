# SPDX-License-Identifier: Apache-2.0
# A man page from what a program prints for --help, and behind it what tutti-run prints for --variables. CLI11 2.6 breaks lines,
# gives long names a column of their own, and does not say "Usage:".
#   { tutti-run --help; tutti-run --variables; } | awk -v name=tutti-run -v version=0.1.0 -f man_page.awk
function plain(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  return text ~ /^[.']/ ? "\\&" text : text
}
function section(title, kind) {
  if (group == "verbatim") print ".fi"
  group = kind
  print ".SH " toupper(title)
}
{ sub(/ +$/, "") }
NR == 1 {
  print ".TH " toupper(name) " 1 \"\" \"tutti " version "\" \"tutti\""
  about = $0
  sub(/[.:,;].*/, "", about)
  section("name")
  print plain(name " - " tolower(substr(about, 1, 1)) substr(about, 2))
}
/^Usage: / || ($1 == name && NR > 1 && (group == "before" || group == "about")) {
  section("synopsis", "about")
  sub(/^Usage: /, "")
  print plain($0)
  section("description", "about")
  print description
  next
}
group == "" || group == "before" || NR == 1 {   # the description: it comes before the usage
  sub(/^ +/, "")
  if ($0 != "") description = description (description == "" ? "" : "\n.br\n") plain($0)
  group = "before"
  next
}
/^Environment variables/ {
  section("environment", "environment")
  print plain($0)
  next
}
/^[A-Z][A-Za-z ,-]*:$/ {
  title = substr($0, 1, length($0) - 1)
  if (group == "environment") {
    print ".SS " plain(title)
  } else if (tolower(title) ~ /^(options|positionals|subcommands)$/) {
    section(title, "terms")
  } else {
    section(title, "verbatim")
    print ".nf"
  }
  next
}
/^$/ {
  if (group != "environment" && group != "") ended = 1
  next
}
ended && /^[^ ]/ {   # what follows the options, or the examples
  section("notes", "notes")
}
{ ended = 0 }
group == "environment" && /^  [^ ]/ || group == "terms" && (/^  [^ ]/ || (match($0, /^ +-/) && RLENGTH <= 11)) {
  line = $0
  sub(/^ +/, "", line)
  gsub(/, +-/, ",-", line)
  text = ""
  if (group == "terms" && match(line, /  +/)) {
    text = substr(line, RSTART + RLENGTH)
    line = substr(line, 1, RSTART - 1)
  }
  print ".TP\n.B " plain(line)
  if (text != "") print plain(text)
  next
}
{
  if (group != "verbatim") sub(/^ +/, "")
  print plain($0)
  if (group == "notes") print ".br"
}
