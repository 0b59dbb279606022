# SPDX-License-Identifier: Apache-2.0
"""The programs of PyTorch's tutorial "Writing Distributed Applications", with "tutti" instead of "gloo"."""

import os
import random
import socket

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from ranks import run


def blocking(rank, size):
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += 1
        dist.send(tensor=tensor, dst=1)
    elif rank == 1:
        dist.recv(tensor=tensor, src=0)
    if rank < 2:
        assert tensor[0] == 1


def non_blocking(rank, size):
    tensor = torch.zeros(1)
    req = None
    if rank == 0:
        tensor += 1
        req = dist.isend(tensor=tensor, dst=1)
    elif rank == 1:
        req = dist.irecv(tensor=tensor, src=0)
    if req is not None:
        req.wait()
        assert tensor[0] == 1


def group_all_reduce(rank, size):
    group = dist.new_group([0, 1])
    tensor = torch.ones(1)
    if rank < 2:
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
        assert tensor[0] == 2


def collectives(rank, size):
    tensor = torch.full((2,), float(rank))
    dist.broadcast(tensor, src=0)
    assert (tensor == 0).all()
    tensor = torch.full((2,), float(rank + 1))
    dist.reduce(tensor, dst=0, op=dist.ReduceOp.PRODUCT)
    if rank == 0:
        assert (tensor == torch.tensor([float(n) for n in range(1, size + 1)]).prod()).all()
    gathered = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(gathered, torch.full((1,), float(rank)))
    assert [int(t) for t in gathered] == list(range(size))
    dist.gather(torch.full((1,), float(rank)), gather_list=gathered if rank == 0 else None, dst=0)
    out = torch.zeros(1)
    dist.scatter(out, scatter_list=[torch.full((1,), float(r)) for r in range(size)] if rank == 0 else None, src=0)
    assert out[0] == rank
    dist.barrier()


class Partition:
    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        return self.data[self.index[index]]


class DataPartitioner:
    def __init__(self, data, sizes, seed=1234):
        self.data, self.partitions = data, []
        indexes = list(range(len(data)))
        random.Random(seed).shuffle(indexes)
        for fraction in sizes:
            length = int(fraction * len(data))
            self.partitions.append(indexes[:length])
            indexes = indexes[length:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 320)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def training(rank, size):
    torch.manual_seed(1234)
    # Images with a bright square whose position is the digit.
    digits = torch.randint(0, 10, (256,))
    images = torch.randn(256, 1, 28, 28) * 0.1
    for i, d in enumerate(digits.tolist()):
        images[i, 0, 3 * (d // 4) + 4 : 3 * (d // 4) + 10, 5 * (d % 4) + 2 : 5 * (d % 4) + 8] += 2
    partition = DataPartitioner(list(zip(images, digits)), [1.0 / size] * size).use(rank)
    batches = torch.utils.data.DataLoader(partition, batch_size=128 // size, shuffle=False)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    losses = []
    for _ in range(12):
        epoch_loss = 0.0
        for data, target in batches:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        losses.append(epoch_loss / len(batches))
    assert losses[-1] < 0.8 * losses[0], losses
    # The replicas stay equal.
    for param in model.parameters():
        first = param.data.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, param.data)


def ring_all_reduce(rank, size):
    def allreduce(send, recv):
        send_buff, recv_buff, accum = send.clone(), send.clone(), send.clone()
        left, right = ((rank - 1) + size) % size, (rank + 1) % size
        for i in range(size - 1):
            if i % 2 == 0:
                send_req = dist.isend(send_buff, right)
                dist.recv(recv_buff, left)
                accum[:] += recv_buff[:]
            else:
                send_req = dist.isend(recv_buff, right)
                dist.recv(send_buff, left)
                accum[:] += send_buff[:]
            send_req.wait()
        recv[:] = accum[:]

    out = torch.zeros(1000)
    allreduce(torch.full((1000,), float(rank + 1)), out)
    assert (out == size * (size + 1) / 2).all()


programs = [blocking, non_blocking, group_all_reduce, collectives, training, ring_all_reduce]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def initialised(way, rank, size, ports, folder):
    """The tutorial's three ways: environment, TCP, shared file."""
    if way == "env":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[0]))
        dist.init_process_group("tutti", rank=rank, world_size=size)
    else:
        where = {"tcp": f"tcp://127.0.0.1:{ports[1]}", "file": f"file://{folder}/shared"}[way]
        dist.init_process_group("tutti", init_method=where, rank=rank, world_size=size)


def all_programs(rank, size, *where):
    for way in ("env", "tcp", "file"):
        initialised(way, rank, size, *where)
        for program in programs:
            program(rank, size)
        dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_programs(method, size, tmp_path):
    run(size, all_programs, [free_port(), free_port()], str(tmp_path), method=method, join=False)
