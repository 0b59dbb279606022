# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel, FSDP2, DTensor and distributed checkpoints have the same results as with Gloo."""

import itertools
import time

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn

import tutti
from ranks import run


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))


def trained(m, rank, steps=5):
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(100 * step + rank)
        x, y = torch.randn(16, 20), torch.randint(0, 5, (16,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(m(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_backend(rank, size, f):
    """Calls f(group) with a group of each backend."""
    return [f(dist.new_group(list(range(size)), backend=backend)) for backend in ("tutti", "gloo")]


def wrapped(m, group, by, **options):
    wrapper = by if dist.get_backend(group) == "tutti" else nn.parallel.DistributedDataParallel
    return wrapper(m, process_group=group, **options)


def ddp(rank, size, by=nn.parallel.DistributedDataParallel):
    def one(group):
        m = wrapped(model(), group, by, bucket_cap_mb=0.01)
        with m.no_sync():
            m(torch.ones(2, 20)).sum().backward()
        m.zero_grad()
        losses = trained(m, rank)
        return losses, [p.detach().clone() for p in m.parameters()]

    (tutti_losses, tutti_parameters), (gloo_losses, gloo_parameters) = by_backend(rank, size, one)
    for a, b in zip(tutti_losses, gloo_losses):
        assert abs(a - b) < 1e-5, (tutti_losses, gloo_losses)
    for a, b in zip(tutti_parameters, gloo_parameters):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        first = a.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, a)


def ddp_of_tutti(rank, size):
    ddp(rank, size, tutti.ddp)
    sparse(rank, size, tutti.ddp)


def with_hook(rank, size, state, hook):
    """The callbacks of these hooks wait for collectives that they start, in several buckets at a time."""
    m = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.001)
    buckets = itertools.count()

    def at_another_time(state, bucket):
        time.sleep(0.003 * ((next(buckets) + rank) % 2))
        return hook(state, bucket)

    m.register_comm_hook(state, at_another_time)
    trained(m, rank)
    assert next(buckets) > 5
    for p in m.parameters():
        first = p.detach().clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, p)


def power_sgd(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    with_hook(rank, size, power.PowerSGDState(None, start_powerSGD_iter=2), power.powerSGD_hook)


def quantized(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks

    with_hook(rank, size, None, quantization_hooks.quantization_pertensor_hook)


def sparse(rank, size, by=nn.parallel.DistributedDataParallel):
    """Gradients of rows that the ranks looked up."""

    def one(group):
        torch.manual_seed(3)
        m = wrapped(nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2)), group, by)
        m(torch.tensor([rank, 7])).sum().backward()
        return [p.grad.to_dense() for p in m.parameters()]

    for a, b in zip(*by_backend(rank, size, one)):
        torch.testing.assert_close(a, b)


def fsdp(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    plain, sharded = model()[:3], model()[:3]
    fully_shard(sharded, mesh=mesh)
    everyone = [nn.functional.cross_entropy, torch.optim.SGD]
    a, b = everyone[1](plain.parameters(), lr=0.1), everyone[1](sharded.parameters(), lr=0.1)
    for step in range(4):
        inputs = []
        for r in range(size):
            torch.manual_seed(100 * step + r)
            inputs.append((torch.randn(8, 20), torch.randint(0, 5, (8,))))
        a.zero_grad()
        b.zero_grad()
        sum(everyone[0](plain(x), y) for x, y in inputs).div(size).backward()  # the mean over the ranks
        everyone[0](sharded(inputs[rank][0]), inputs[rank][1]).backward()
        a.step()
        b.step()
    for p, q in zip(plain.parameters(), sharded.parameters()):
        torch.testing.assert_close(p.data, q.full_tensor().data, rtol=1e-5, atol=1e-6)


def dtensor(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    a, b = torch.randn(8, 6), torch.randn(6, 10)
    x = distribute_tensor(a, mesh, [Shard(0)])
    y = distribute_tensor(b, mesh, [Shard(1)])
    product = x.redistribute(mesh, [Replicate()]) @ y
    torch.testing.assert_close(product.full_tensor(), a @ b)
    turned = product.redistribute(mesh, [Shard(0)])
    torch.testing.assert_close(turned.full_tensor(), a @ b)
    partial = DTensor.from_local(torch.full((3,), float(rank)), mesh, [Replicate()]).to_local()
    assert partial[0].item() == rank


def checkpoint(rank, size, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(5)
    whole = torch.randn(16, 3)
    dcp.save({"x": distribute_tensor(whole, mesh, [Shard(0)]), "step": 7}, checkpoint_id=folder)
    state = {"x": distribute_tensor(torch.zeros(16, 3), mesh, [Shard(0)]), "step": 0}
    dcp.load(state, checkpoint_id=folder)
    assert state["step"] == 7 and torch.equal(state["x"].full_tensor(), whole)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("body", [ddp, ddp_of_tutti, power_sgd, quantized, sparse, fsdp, dtensor], ids=lambda b: b.__name__)
def test_as_with_gloo(body, size):
    run(size, body, method="fork")


def test_checkpoint(tmp_path):
    run(2, checkpoint, str(tmp_path), method="fork")


