# SPDX-License-Identifier: Apache-2.0
"""Failures and their errors: deaths, timeouts, mismatches, forks, and programs that end without shutdown."""

import contextlib
import datetime
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import util

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import tutti
from ranks import raises, run


def killed(rank, size):
    x = torch.ones(1000)
    for _ in range(20):
        dist.all_reduce(x, dist.ReduceOp.MAX)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    text = raises(RuntimeError, "rank 1", lambda: [dist.all_reduce(x) for _ in range(1000)])
    assert "died" in text or "killed" in text, text
    assert time.monotonic() - begin < 30
    # Ranks that wait later get the error, too.
    raises(RuntimeError, "rank 1", dist.barrier)


@pytest.mark.parametrize("size", [2, 4])
def test_a_killed_rank_is_named(size):
    run(size, killed, method="fork", expected=[-9 if r == 1 else 0 for r in range(size)])


def killed_in_a_step(rank, size, folder):
    """Rank 1 dies while it computes gradients: the step fails on the others and names rank 1."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6))), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    done = 0

    def die(gradient):
        if rank == 1 and done == 5:
            with open(folder + "/died", "w") as f:
                f.write(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)

    model.module[2].weight.register_hook(die)

    def steps():
        nonlocal done
        while done < 1000:
            optimizer.zero_grad()
            model(torch.ones(8, 64)).square().mean().backward()
            optimizer.step()
            done += 1

    raises(RuntimeError, "rank 1", steps)
    told = time.monotonic()
    assert done == 5, done
    with open(folder + "/died") as f:
        print(f"rank {rank} of {size} was told {(told - float(f.read())) * 1e3:.1f} ms after the death")


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_killed_in_a_step_of_ddp_is_named(size, tmp_path):
    run(size, killed_in_a_step, str(tmp_path), method="fork", expected=[-9 if r == 1 else 0 for r in range(size)])


def goes_on(rank, size, folder, victim):
    """Rank 0 serves PyTorch's store, which ends with it. The survivors train on."""
    meeting = dist.FileStore(folder + "/meeting", size)
    if rank == 0:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("localhost", int(meeting.get("port")))
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size)
    pair = dist.new_group([0, 1])
    dist.barrier()  # all have read what they need from the store
    for survivors in ([r for r in range(size) if r != victim], None):
        if rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        if survivors is not None:
            raises(RuntimeError, f"rank {victim}", lambda: [dist.all_reduce(torch.ones(3)) for _ in range(1000)])
        else:  # nobody has died: all of them begin again
            survivors = list(range(dist.get_world_size()))
            rank = dist.get_rank()
        assert tutti.shrink() is dist.group.WORLD
        assert dist.get_world_size() == len(survivors)
        assert dist.get_rank() == survivors.index(rank)
        x = torch.tensor([float(rank)])
        dist.all_reduce(x)
        assert x.item() == sum(survivors), x
        pair = dist.new_group([0, 1])
        dist.all_reduce(x, group=pair)
        model = tutti.ddp(torch.nn.Linear(2, 1))
        model(torch.full((1, 2), float(dist.get_rank()))).sum().backward()
        assert model.module.weight.grad.tolist() == [[(len(survivors) - 1) / 2] * 2]
    dist.destroy_process_group()


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_go_on(victim, tmp_path):
    run(3, goes_on, str(tmp_path), victim, join=False, expected=[-9 if r == victim else 0 for r in range(3)])


def goes_on_after_a_difference(rank, size):
    """Rank 1 does not wait for its work, and nobody has been told that the calls of the second group differ."""
    second, third = (dist.new_group([0, 1]) for _ in range(2))
    with contextlib.suppress(RuntimeError):  # one rank may be told at once
        broadcast_from_itself(rank, size, second)
    work = dist.all_reduce(torch.ones(4 + rank), async_op=True)
    if rank == 0:
        raises(RuntimeError, "all_reduce", work.wait)
    dist.barrier(group=third)
    tutti.shrink()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2


def test_ranks_go_on_after_a_difference():
    run(2, goes_on_after_a_difference)


def part_goes_on(rank, size):
    group = dist.new_group([1, 2, 3])
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        raises(ValueError, "tutti", tutti.shrink, group)
        return
    raises(RuntimeError, "rank 2", lambda: [dist.all_reduce(torch.ones(3), group=group) for _ in range(1000)])
    group = tutti.shrink(group)
    assert dist.get_process_group_ranks(group) == [1, 3]
    x = torch.tensor([rank])
    dist.all_reduce(x, group=group)
    assert x.item() == 4


def test_survivors_of_a_group_go_on():
    run(4, part_goes_on, expected=[0, 0, -9, 0])


def goes_on_without(rank, size, lives):
    """PyTorch's own call names the ranks that are left out, dead or not."""
    group = dist.new_group([1, 2, 3])
    dist.all_reduce(torch.ones(3))
    if rank == 2:
        if not lives:
            os.kill(os.getpid(), signal.SIGKILL)
        return
    if not lives:
        raises(RuntimeError, "rank 2", lambda: [dist.all_reduce(torch.ones(3)) for _ in range(1000)])
    if rank > 0:
        part = dist.shrink_group([1], group, shrink_flags=0 if lives else 1)
        assert part.rank() == (0 if rank == 1 else 1)
        x = torch.tensor([rank])
        dist.all_reduce(x, group=part)
        assert x.item() == 4
    dist.shrink_group([2])
    assert (dist.get_world_size(), dist.get_rank()) == (3, [0, 1, 2, 2][rank])
    x = torch.tensor([rank])
    dist.all_reduce(x)
    assert x.item() == 4
    if dist.get_rank() > 0:  # once more, without a rank that ends meanwhile
        dist.shrink_group([0])
        dist.all_reduce(x)
        assert x.item() == 8


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this PyTorch has no shrink_group")
@pytest.mark.parametrize("lives", [False, True])
def test_ranks_that_torch_leaves_out(lives):
    run(4, goes_on_without, lives, expected=[0, 0, 0 if lives else -9, 0])


def differing(rank, size):
    text = raises(RuntimeError, "all_reduce", dist.all_reduce, torch.ones(4 if rank == 0 else 5))
    assert "4" in text and "5" in text, text


def test_ranks_that_differ_are_told():
    run(2, differing, method="fork")
    run(3, differing, method="fork")


def broadcast_from_itself(rank, size, group):
    dist.broadcast(torch.full((4,), float(rank)), dist.get_process_group_ranks(group)[rank], group=group)


def scatter_from_itself(rank, size, group):
    dist.scatter(torch.empty(4), [torch.full((4,), float(rank))] * size, group=group, group_src=rank)


def broadcast_beside_barrier(rank, size, group):
    dist.broadcast(torch.ones(4), 0, group=group) if rank == 0 else dist.barrier(group)


differences = [broadcast_from_itself, scatter_from_itself, broadcast_beside_barrier]


def told_at_the_end(rank, size, body):
    """What no later collective compares is compared when a rank destroys its group."""
    for late in range(3):
        group = dist.new_group(list(range(size)))
        for _ in range(late % 2):  # over messages, or in memory that the ranks share
            dist.all_reduce(torch.ones(4), group=group)
        if rank == late:  # 2: none
            time.sleep(0.1)
        told = ""
        try:
            body(rank, size, group)
        except RuntimeError as e:
            told = str(e)
        told = told or raises(RuntimeError, "", dist.destroy_process_group, group)
        for call in ("root 0", "root 1") if body is not broadcast_beside_barrier else ("broadcast", "barrier"):
            assert call in told, told
    dist.barrier()


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
@pytest.mark.parametrize("body", differences, ids=lambda b: b.__name__)
def test_ranks_that_differ_in_their_last_call_are_told(body, transports, monkeypatch):
    monkeypatch.setenv("TUTTI_TRANSPORTS", transports)
    run(2, told_at_the_end, body, method="fork")


def agree_in_their_last_call(rank, size):
    """A rank that destroys its group waits for ranks that have yet to call its last collective, and for no other."""
    group = dist.new_group(list(range(size)))
    dist.broadcast(torch.ones(4), 0, group=group)
    if rank == 1:
        time.sleep(0.3)  # its loop does not need it
    begin = time.monotonic()
    dist.destroy_process_group(group)
    assert time.monotonic() - begin < 3
    dist.barrier()


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_ranks_that_agree_leave_at_once(transports, monkeypatch):
    monkeypatch.setenv("TUTTI_TRANSPORTS", transports)
    run(3, agree_in_their_last_call, method="fork")


def ends_of_two(program, tmp_path):
    """Runs the program as two ranks. Returns the exit code and standard error of each."""
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(r), str(tmp_path / "store")],
                              stderr=subprocess.PIPE, text=True) for r in range(2)]
    try:
        said = [r.communicate(timeout=100)[1] for r in ranks]
        return [(r.returncode, text) for r, text in zip(ranks, said)]
    finally:
        for r in ranks:
            r.kill()


differ_and_end = """
import sys, torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("tutti", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
dist.all_reduce(torch.ones(4))
dist.broadcast(torch.ones(4), rank)
"""


def test_ranks_that_differ_are_told_at_their_end(tmp_path):
    for _, said in ends_of_two(differ_and_end, tmp_path):
        assert "root 0" in said and "root 1" in said, said


few_descriptors = """
import os, resource, sys, torch, torch.distributed as dist
limit = 200
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
for left in (1, 4, 8, 10, 12):
    store, opened = dist.FileStore(sys.argv[1], 1), []
    while len(os.listdir("/proc/self/fd")) - 1 < limit - left:
        opened.append(open("/dev/null"))
    try:
        dist.init_process_group("tutti", store=store, rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
    except Exception as e:
        print(e)
    opened.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
print("goes on")
"""


def test_few_descriptors_are_told(tmp_path):
    """A store whose destructor fails would abort the process."""
    ended = subprocess.run([sys.executable, "-c", few_descriptors, str(tmp_path / "store")], capture_output=True,
                           text=True, timeout=100)
    assert ended.returncode == 0 and "goes on" in ended.stdout, ended
    assert "TUTTI_TRANSPORTS" not in ended.stdout, ended.stdout


def late(rank, size):
    group = dist.new_group(list(range(size)), timeout=datetime.timedelta(milliseconds=300))
    if rank == 0:
        begin = time.monotonic()
        text = raises(RuntimeError, "imed out", dist.barrier, group=group)
        assert "not called by rank 1" in text, text
        assert time.monotonic() - begin < 20
    else:
        time.sleep(1)
    # Other groups are not affected.
    dist.barrier()
    if rank == 0:
        raises(RuntimeError, "Rank 1 failed to pass monitoredBarrier", dist.monitored_barrier,
               timeout=datetime.timedelta(milliseconds=200))
        work = dist.irecv(torch.empty(3), 1, tag=9)
        raises(RuntimeError, "imed out", work.wait, datetime.timedelta(milliseconds=50))
    dist.barrier()


def test_timeouts_name_who_is_late():
    run(2, late, method="fork")


def for_ever(rank, size, store):
    """PyTorch hands on a timeout of more than 292,000 years as a negative one."""
    for_ever = datetime.timedelta.max
    dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=size)
    for timeout in (for_ever, datetime.timedelta(days=365_000), datetime.timedelta(days=99_000_000)):
        group = dist.new_group(list(range(size)), timeout=timeout)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == size
    assert dist.all_reduce(x, async_op=True).wait(for_ever)
    dist.monitored_barrier(timeout=for_ever)
    text = raises(RuntimeError, "give at least 1 ms", dist.new_group, [rank], timeout=datetime.timedelta(seconds=-5),
                  use_local_synchronization=True)
    assert "timeout= is" in text and "::" not in text, text


def test_timeouts_may_be_for_ever(tmp_path):
    run(2, for_ever, str(tmp_path / "store"), method="fork", join=False)


def late_in_a_group(rank, size):
    """Errors name ranks of the group."""
    group = dist.new_group([1, 2], timeout=datetime.timedelta(milliseconds=300))
    if rank == 1:
        text = raises(RuntimeError, "not called by rank 1", dist.barrier, group=group)
        assert "whose ranks 0, 1, ... are 1, 2 of the world" in text, text
        assert "on group 1" in text, text
    dist.barrier()


def test_errors_say_which_ranks_a_group_has():
    run(3, late_in_a_group, method="fork")


def late_to_a_monitored_barrier(rank, size):
    """What a rank sends too late does not count for the next monitored_barrier."""
    token, short = torch.ones(1), datetime.timedelta(milliseconds=200)
    if rank == 0:
        raises(RuntimeError, "Rank 1 failed to pass monitoredBarrier", dist.monitored_barrier, timeout=short)
        dist.send(token, 1)
        dist.recv(token, 1)  # rank 1 has been in its first one, and calls the second one later
        raises(RuntimeError, "Rank 1 failed to pass monitoredBarrier", dist.monitored_barrier, timeout=short)
        dist.send(token, 1)
    else:
        dist.recv(token, 0)
        raises(RuntimeError, "Rank 1 successfully reached", dist.monitored_barrier, timeout=short)
        dist.send(token, 0)
        dist.recv(token, 0)
        raises(RuntimeError, "Rank 1 successfully reached", dist.monitored_barrier, timeout=short)
    dist.monitored_barrier()


def test_a_monitored_barrier_waits_for_its_own_calls():
    run(2, late_to_a_monitored_barrier, method="fork", timeout=30)


def destroyed(rank, size):
    group = dist.new_group(list(range(size)))
    backend = group._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(2), group=group)
    dist.destroy_process_group(group)
    raises(RuntimeError, "was destroyed", lambda: backend.allreduce([torch.ones(2)]).wait())
    dist.destroy_process_group()
    raises(ValueError, "init_process_group", dist.all_reduce, torch.ones(2))


def test_a_destroyed_group_says_so():
    run(2, destroyed, method="fork")


def destroyed_meanwhile(rank, size):
    """A thread may start operations of a group while another one destroys it."""
    for _ in range(30):
        group = dist.new_group(list(range(size)))
        backend = group._get_backend(torch.device("cpu"))
        first, ends = threading.Event(), []

        def reduces(backend=backend, first=first, ends=ends):
            try:
                while True:
                    backend.allreduce([torch.ones(2)])
                    first.set()
            except RuntimeError as e:
                ends.append(str(e))
            first.set()

        thread = threading.Thread(target=reduces)
        thread.start()
        first.wait()
        dist.destroy_process_group(group)
        thread.join()
        assert "was destroyed" in ends[0] or "left" in ends[0], ends
    dist.barrier()


def test_a_group_may_be_destroyed_beside_its_operations():
    run(2, destroyed_meanwhile, method="fork")


def aborted(rank, size):
    group = dist.new_group(list(range(size)))
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        work = dist.irecv(torch.empty(3), 1, group=group)
        backend.abort()
        raises(RuntimeError, "abort", work.wait)
    else:
        raises(RuntimeError, "rank 0", dist.barrier, group=group)
    dist.barrier()


def test_abort_ends_what_waits():
    run(2, aborted, method="fork")


def aborted_beside_others(rank, size):
    """Groups of the same ranks, one of which fails after the other."""
    first, second = (dist.new_group(list(range(size))) for _ in range(2))
    for failing in (first, dist.group.WORLD):
        if rank == 0:
            failing._get_backend(torch.device("cpu")).abort()
        raises(RuntimeError, "abort", dist.barrier, group=failing)
        x = torch.ones(3)
        dist.all_reduce(x, group=second)
        assert (x == size).all()


@pytest.mark.parametrize("size", [2, 4])
def test_a_group_goes_on_beside_one_that_was_aborted(size):
    run(size, aborted_beside_others, method="fork")


def group_with_a_dead_rank(rank, size):
    group = dist.new_group([0, 2])
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(RuntimeError, "rank 1", dist.barrier)
    for g in (group, dist.new_group([0, 2])):  # those that were made before go on, and others can be made
        x = torch.ones(3)
        dist.all_reduce(x, group=g)
        assert (x == 2).all()
    begin = time.monotonic()
    raises(RuntimeError, "rank 1", dist.new_group, list(range(size)))
    assert time.monotonic() - begin < 20
    dist.barrier(group=group)


def test_groups_of_the_others_after_a_death():
    run(3, group_with_a_dead_rank, method="fork", expected=[0, -9, 0])


def forks(rank, size):
    dist.all_reduce(torch.ones(2))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            raises(RuntimeError, "forked", dist.all_reduce, torch.ones(2))
            raises(RuntimeError, "forked", dist.new_group, list(range(size)))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x[0].item() == size


def test_a_forked_child_is_told():
    run(2, forks, method="fork")


def joins_in_a_child(rank, size, store):
    dist.destroy_process_group()
    dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=size)
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x[0].item() == size


def forks_ranks(rank, size, folder):
    dist.all_reduce(torch.ones(2))
    child = mp.get_context("fork").Process(target=joins_in_a_child, args=(rank, size, folder + "/children"))
    child.start()
    child.join(30)
    assert child.exitcode == 0, child.exitcode
    dist.barrier()


def test_forked_children_have_groups_of_their_own(tmp_path):
    run(2, forks_ranks, str(tmp_path), method="fork")


class Enough(Exception):
    pass


def interrupted(rank, size):
    """The main thread runs handlers of signals while it waits, and what they raise ends the wait."""
    group = dist.new_group(list(range(size)))

    def enough(number, frame):
        raise Enough

    signal.signal(signal.SIGALRM, enough)
    if rank == 0:
        x = torch.zeros(3)
        work = dist.irecv(x, 1)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        raises(Enough, "", work.wait)
        dist.send(torch.ones(1), 1)
        work.wait()  # the receive went on
        assert (x == 4).all()
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        raises(Enough, "", dist.monitored_barrier, group)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        raises(Enough, "", dist.all_reduce, x, group=group)
        x.fill_(7)  # nobody has the operation any more
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.empty(1), 0)
        dist.send(torch.full((3,), 4.0), 0)
        dist.recv(torch.empty(1), 0)
        raises(RuntimeError, "rank 0", dist.all_reduce, torch.ones(3), group=group)
    dist.barrier()
    assert rank == 1 or (x == 7).all()


def test_a_signal_ends_a_wait():
    run(2, interrupted, method="fork")


starts_anew = """
import os, signal, sys, torch, torch.distributed as dist
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if rank == 1 and attempt == 0:
    sys.exit(3)  # before it has joined
for _ in range(2):
    dist.init_process_group("tutti")
    group = dist.new_group([0, 1])
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    assert x.item() == 2
    if rank == 1 and attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()
os.write(1, f"attempt {attempt} ends in order\\n".encode())  # in one piece: the ranks share the pipe
"""


def test_torchrun_starts_ranks_anew(tmp_path):
    """They meet at the store of the ranks before them, as a program does that joins twice."""
    program = tmp_path / "program.py"
    program.write_text(starts_anew)
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2",
         str(program)], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("attempt 2 ends in order") == 2, ended.stdout


def sends_and_ends(rank, size):
    if rank == 0:
        dist.isend(torch.full((1 << 20,), 3.0), 1)
    else:
        time.sleep(0.3)
        x = torch.empty(1 << 20)
        dist.recv(x, 0)
        assert (x == 3).all()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_was_sent_arrives_after_the_end(method):
    run(2, sends_and_ends, method=method)


def just_ends(rank, size):
    works = [dist.all_reduce(torch.ones(1 << 16), async_op=True) for _ in range(10)]
    for w in works[:5]:
        w.wait()


def test_a_program_may_just_end():
    for _ in range(3):
        run(3, just_ends, method="fork")


def receives_in_vain(rank, size):
    """Receives that are not matched do not delay the end: each waits for the end of the other rank."""
    dist.barrier()
    dist.irecv(torch.empty(2), 1 - rank)
    dist.irecv(torch.empty(2))
    begin = time.monotonic()
    tutti._shut_down()  # called again when Python ends
    assert time.monotonic() - begin < 4


def test_a_receive_in_vain_does_not_delay_the_end():
    run(2, receives_in_vain, method="fork")


receives_in_a_thread = """
import sys, threading, torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("tutti", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
started = threading.Event()
def receive():
    started.set()
    dist.recv(torch.empty(1), 1 - rank)
threading.Thread(target=receive, daemon=True).start()
started.wait()
dist.barrier()
"""


def test_a_daemon_thread_that_receives_is_silent_at_the_end(tmp_path):
    for code, said in ends_of_two(receives_in_a_thread, tmp_path):
        assert code == 0 and "Traceback" not in said, said


def communicates_in_a_thread(rank, size, folder, in_pool):
    """The thread of rank 0 waits when the function returns, that of rank 1 begins afterwards."""
    returned = threading.Event()
    util.Finalize(None, returned.set, exitpriority=1)  # after tutti's; since Python 3.13 also after the threads

    def reduce():
        if rank == 1:
            returned.wait(1)
        x = torch.ones(1)
        dist.all_reduce(x)
        pathlib.Path(folder, str(rank)).write_text(str(x.item()))

    if in_pool:
        ThreadPoolExecutor(1).submit(reduce)
    else:
        threading.Thread(target=reduce).start()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("in_pool", [False, True])
def test_threads_may_communicate_when_the_function_of_a_process_has_returned(in_pool, method, tmp_path):
    run(2, communicates_in_a_thread, str(tmp_path), in_pool, method=method, timeout=40)
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["2.0", "2.0"]


a_callback_waits = """
import sys, threading, torch, torch.distributed as dist
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2)
dist.init_process_group("tutti", store=store, rank=rank, world_size=2)
later, is_known, has_begun = [], threading.Event(), threading.Event()
def wait_for_later(first):
    has_begun.set()
    is_known.wait()
    later[0].wait()
    print("the callback has seen", later[0].value()[0].item(), file=sys.stderr)
if rank == 1:
    store.get("called")
works = [dist.all_reduce(torch.ones(1), async_op=True)]
if rank == 0:
    works[0].get_future().then(wait_for_later)
    store.set("called", "")
    has_begun.wait()  # in a thread of the backend
works.append(dist.all_reduce(torch.ones(1), async_op=True))
later.append(works[1].get_future())
for w in works:
    w.wait()
is_known.set()
dist.destroy_process_group()
"""


def test_a_callback_that_waits_for_a_later_work_ends_before_python(tmp_path):
    (code, said), (other, _) = ends_of_two(a_callback_waits, tmp_path)
    assert code == other == 0 and "the callback has seen 2.0" in said, said


def destroys(rank, size, store):
    dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=size)
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


def test_a_file_serves_several_programs(tmp_path):
    """PyTorch removes the file when no rank uses it."""
    for _ in range(2):
        run(2, destroys, str(tmp_path / "store"), method="fork", join=False, timeout=30)
        assert not (tmp_path / "store").exists()


def test_a_program_may_destroy_its_groups_in_a_handler(tmp_path):
    program = (
        "import atexit, torch.distributed as dist\n"
        "atexit.register(dist.destroy_process_group)\n"
        f"dist.init_process_group('tutti', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr


def another_size(rank, size, store):
    text = raises(RuntimeError, "", dist.init_process_group, "tutti", init_method="file://" + store, rank=0,
                  world_size=2, timeout=datetime.timedelta(milliseconds=300))
    assert "timeout= of init_process_group" in text and "TUTTI_" not in text, text


def test_ranks_that_do_not_come_are_named(tmp_path):
    run(1, another_size, str(tmp_path / "store"), method="fork", join=False)


waits_for_others = """
import signal, sys, torch.distributed as dist
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
try:
    dist.init_process_group("tutti", init_method="file://" + sys.argv[1], rank=0, world_size=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_signal_ends_the_wait_for_other_ranks(tmp_path):
    store = tmp_path / "store"
    waiting = subprocess.Popen([sys.executable, "-c", waits_for_others, store], stdout=subprocess.PIPE, text=True)
    try:
        while b"meetings/0" not in (store.read_bytes() if store.exists() else b""):
            assert waiting.poll() is None, waiting.returncode
            time.sleep(0.05)
        time.sleep(0.5)  # more likely in its wait; earlier, the signal has the same effect
        waiting.send_signal(signal.SIGINT)
        output, _ = waiting.communicate(timeout=60)
        assert "interrupted" in output and waiting.returncode == 0, (output, waiting.returncode)
    finally:
        waiting.kill()
