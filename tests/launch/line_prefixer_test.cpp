// SPDX-License-Identifier: Apache-2.0
#include "launch/output_sink.hpp"

#include <doctest/doctest.h>

using namespace tutti::launch;

namespace {

struct page : line_destination {
  void write(std::string_view bytes) override {
    text += bytes;
    ++writes;
  }
  std::string text;
  int writes = 0;
};

// Where lines wait for the end of another one until `patience_ends`.
struct patient_page : page {
  bool begin_wait() override {
    ++waits;
    return true;
  }
  void patience_ends() { end_wait(); }
  int waits = 0;
};

// That shows unfinished lines once `hold_ends`.
struct screen : patient_page {
  bool shows_unfinished_lines() const override { return true; }
  void hold_ends() { end_hold(); }
};

struct job_of_three {
  explicit job_of_three(tag_policy policy) : all(policy) {}
  speakers all;
  page out;
  line_prefixer zero{0, all, out};
  line_prefixer one{1, all, out};
  line_prefixer two{2, all, out};
};

}  // namespace

TEST_SUITE("launch/line_prefixer") {
  TEST_CASE("bytes of only one rank pass unchanged and at once") {
    job_of_three job(tag_policy::automatic);
    job.two.feed("\r10 %");
    CHECK(job.out.text == "\r10 %");
    job.two.feed("\r20 %");
    CHECK(job.out.text == "\r10 %\r20 %");
    job.two.finish();
    CHECK(job.out.text == "\r10 %\r20 %");
  }

  TEST_CASE("all lines have prefixes as soon as a second rank writes") {
    job_of_three job(tag_policy::automatic);
    job.zero.feed("a\n");
    job.one.feed("b\n");
    job.zero.feed("c\nd\n");
    CHECK(job.out.text == "a\n[1] b\n[0] c\n[0] d\n");
    CHECK(job.out.writes == 3);
  }

  TEST_CASE("lines are written whole, in whatever pieces they arrive") {
    job_of_three job(tag_policy::always);
    job.zero.feed("he");
    job.one.feed("wor");
    CHECK(job.out.text.empty());
    job.zero.feed("llo\nand");
    job.one.feed("ld\n");
    job.zero.feed(" more\n");
    CHECK(job.out.text == "[0] hello\n[1] world\n[0] and more\n");
  }

  TEST_CASE("an unfinished line before the second rank's first output is ended") {
    job_of_three job(tag_policy::automatic);
    job.zero.feed("working...");
    job.one.feed("warning\n");
    job.zero.feed(" done\n");
    CHECK(job.out.text == "working...\n[1] warning\n[0]  done\n");
  }

  TEST_CASE("lines of others wait for the end of an unfinished one") {
    speakers all(tag_policy::automatic);
    patient_page out;
    line_prefixer zero(0, all, out), one(1, all, out), two(2, all, out);
    zero.feed("abc");
    CHECK(out.text == "abc");
    one.feed("from1\nand");
    two.feed("from2\n");
    two.finish();
    one.feed(" more\nrest");
    CHECK(out.text == "abc");
    zero.feed("def\nnext");
    CHECK(out.text == "abcdef\n[1] from1\n[1] and more\n[2] from2\n");
    CHECK(out.waits == 2);
    zero.finish();
    one.finish();
    CHECK(out.text.ends_with("[2] from2\n[0] next\n[1] rest\n"));
  }

  TEST_CASE("on a terminal each redraw starts with its rank, and replaces that of another rank") {
    speakers all(tag_policy::always);
    screen out;
    line_prefixer zero(0, all, out), one(1, all, out);
    zero.feed("\r10 %");
    CHECK(out.text.empty());
    out.hold_ends();
    CHECK(out.text == "[0] 10 %");
    zero.feed("\r20 %");
    zero.feed("\r");
    zero.feed("30 %");
    CHECK(out.text == "[0] 10 %\r[0] 20 %\r[0] 30 %");
    out.text.clear();
    one.feed("5 %\r");
    out.hold_ends();
    CHECK(out.text == "\r\x1b[K[1] 5 %\r");
    one.feed("6 %\r");
    CHECK(out.text == "\r\x1b[K[1] 5 %\r[1] 6 %\r");
    out.text.clear();
    zero.feed("\r100 %\n");
    CHECK(out.text == "\r\x1b[K[0] 100 %\n");
    CHECK(out.waits == 0);
    one.feed("7 %\r\nnext\r\n\r\n");
    CHECK(out.text.ends_with("\n[1] 7 %\r\n[1] next\r\n[1] \n"));
  }

  TEST_CASE("on a terminal a prompt is shown, and others wait a moment for its end") {
    speakers all(tag_policy::always);
    screen out;
    line_prefixer zero(0, all, out), one(1, all, out);
    zero.feed("name? ");
    out.hold_ends();
    CHECK(out.text == "[0] name? ");
    one.feed("\r10 %");
    out.hold_ends();
    CHECK(out.text == "[0] name? ");
    out.patience_ends();
    CHECK(out.text == "[0] name? \n[1] 10 %");
    zero.feed("address? ");
    zero.finish();
    CHECK(out.text == "[0] name? \n[1] 10 %");
    out.patience_ends();
    CHECK(out.text == "[0] name? \n[1] 10 %\n[0] address? \n");
    out.hold_ends();
  }

  TEST_CASE("they wait a moment only, and not for a stream that has ended") {
    speakers all(tag_policy::automatic);
    patient_page out;
    line_prefixer zero(0, all, out), one(1, all, out);
    zero.feed("50 %");
    one.feed("from1\n");
    one.finish();
    out.patience_ends();
    CHECK(out.text == "50 %\n[1] from1\n");
    zero.feed("\n");  // ends the line that has been ended already
    CHECK(out.text == "50 %\n[1] from1\n");

    speakers others(tag_policy::automatic);
    patient_page end;
    line_prefixer two(2, others, end), three(3, others, end);
    two.feed("last");
    two.finish();
    three.feed("from3\n");
    CHECK(end.text == "last\n[3] from3\n");
    CHECK(end.waits == 0);
  }

  TEST_CASE("an unfinished line is remembered after its stream is gone, as before a restart") {
    speakers all(tag_policy::automatic);
    patient_page out;
    {
      line_prefixer before(0, all, out);
      before.feed("50 %");
      before.finish();
    }
    line_prefixer one(1, all, out);
    one.feed("b\n");
    CHECK(out.text == "50 %\n[1] b\n");
    CHECK(out.waits == 0);
  }

  TEST_CASE("an unfinished line ends when the waiting ones become too many") {
    speakers all(tag_policy::automatic);
    patient_page out;
    line_prefixer zero(0, all, out), one(1, all, out);
    zero.feed("abc");
    one.feed("x\n");
    one.feed(std::string(line_prefixer::most_waiting_bytes, 'y') + '\n');
    CHECK(out.text.starts_with("abc\n[1] x\n[1] yyy"));
  }

  TEST_CASE("an unfinished line continues without a prefix if the stream had no other output") {
    speakers all(tag_policy::automatic);
    page out;
    page err;
    line_prefixer zero(0, all, out);
    line_prefixer other(1, all, err);
    zero.feed("working...");
    other.feed("warning\n");
    zero.feed(" done\nnext\n");
    CHECK(out.text == "working... done\n[0] next\n");
    CHECK(err.text == "[1] warning\n");
  }

  TEST_CASE("a last line without newline gets one only if other output can follow") {
    job_of_three job(tag_policy::automatic);
    job.zero.feed("x\n");
    job.one.feed("y");
    CHECK(job.out.text == "x\n");
    job.one.finish();
    CHECK(job.out.text == "x\n[1] y\n");
    job.one.finish();
    CHECK(job.out.text == "x\n[1] y\n");
  }

  TEST_CASE("never: whole lines, no prefix") {
    job_of_three job(tag_policy::never);
    job.zero.feed("a");
    job.one.feed("b\n");
    job.zero.feed("c\n");
    job.two.feed("d");
    job.two.finish();
    CHECK(job.out.text == "a\nb\nc\nd\n");
  }

  TEST_CASE("a line above the limit is written in adjacent pieces") {
    job_of_three job(tag_policy::always);
    const std::string piece(line_prefixer::longest_kept_bytes, 'x');
    job.zero.feed(piece);
    CHECK(job.out.text == "[0] " + piece);
    job.zero.feed("tail\nnext\n");
    CHECK(job.out.text == "[0] " + piece + "tail\n[0] next\n");
  }

  TEST_CASE("a long line is broken when another rank writes") {
    job_of_three job(tag_policy::always);
    const std::string piece(line_prefixer::longest_kept_bytes, 'x');
    job.zero.feed(piece);
    job.one.feed("hey\n");
    job.zero.feed("tail\n");
    CHECK(job.out.text == "[0] " + piece + "\n[1] hey\n[0] tail\n");
    job.two.feed(piece);
    job.two.finish();
    CHECK(job.out.text.ends_with("[2] " + piece + "\n"));
  }

  TEST_CASE("the launcher's own lines begin on a new line and do not enable prefixes") {
    job_of_three job(tag_policy::automatic);
    job.zero.feed("50 %");
    job.out.say("tutti-run: hm\n");
    job.zero.feed("60 %\n");
    CHECK(job.out.text == "50 %\ntutti-run: hm\n60 %\n");
  }

  TEST_CASE("empty pieces and empty lines") {
    job_of_three job(tag_policy::automatic);
    job.one.feed("");
    job.zero.feed("a\n");  // an empty write of rank 1 does not count
    CHECK(job.out.text == "a\n");
    job.one.feed("\n\n");
    CHECK(job.out.text == "a\n[1] \n[1] \n");
  }
}
