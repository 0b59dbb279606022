# SPDX-License-Identifier: Apache-2.0
"""train_mnist.cpp in Python, by DistributedDataParallel: the same network, data and order of images.

    python ddp.py [--ranks 2] [--backend tutti|gloo] [--epochs 10] [--losses]

It learns the 8 x 8 digits that ship with the examples, scaled to 28 x 28. With --losses each rank prints the
loss of every step, as train_mnist.cpp does.
"""

import argparse
import gzip
import os
import pathlib
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv.gz"
WORD = 2**64 - 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.dropout = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.dropout(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.view(-1, 320)))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def shuffled(count, seed):
    """Fisher-Yates by SplitMix64, as tutti::shuffle has it: the examples' test set is the same everywhere."""
    order = list(range(count))
    state = seed
    for i in range(count, 1, -1):
        state = (state + 0x9E3779B97F4A7C15) & WORD
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        j = (z ^ (z >> 31)) % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def load_digits():
    with gzip.open(DIGITS, "rt") as lines:
        rows = torch.tensor([[int(x) for x in line.split(",")] for line in lines])
    rows = rows[shuffled(len(rows), 1998)]
    images = rows[:, :64].float().view(-1, 1, 8, 8) / 16
    images = (F.interpolate(images, size=(28, 28), mode="area") - 0.1307) / 0.3081
    return (images[:-360], rows[:-360, 64]), (images[-360:], rows[-360:, 64])


def train(rank, options, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(options.backend, rank=rank, world_size=options.ranks)
    torch.set_num_threads(1)  # the ranks share the processor
    torch.manual_seed(1234 + rank)
    (data, target), (test_data, test_target) = load_digits()
    model = Net()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)

    batch = 128 // options.ranks
    steps = len(target) // (batch * options.ranks)
    for epoch in range(options.epochs):
        order = torch.randperm(len(target))
        dist.broadcast(order, 0)
        epoch_loss = 0.0
        for step in range(steps):
            mine = order.narrow(0, (step * options.ranks + rank) * batch, batch)
            optimizer.zero_grad()
            loss = F.nll_loss(ddp(data[mine]), target[mine])
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
            if options.losses:
                print(f"rank {rank} loss {loss.item():.7f}", flush=True)
        print(f"Rank {rank}, epoch {epoch}: {epoch_loss / steps:.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        right = (model(test_data).argmax(1) == test_target).sum().item()
    if rank == 0:
        print(f"accuracy on {len(test_target)} test images: {100 * right / len(test_target):.1f} %")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--losses", action="store_true")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (options, port), nprocs=options.ranks)
