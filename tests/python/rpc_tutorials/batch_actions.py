"""An agent that chooses the actions of all observers in one forward pass, as in torch's tutorial
"Implementing Batch RPC Processing Using Asynchronous Executions": each call returns a future of its own
action."""
import threading

import torch
import torch.distributed.rpc as rpc
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical

WORLD_SIZE = 3
EPISODES, STEPS = 3, 4


class Policy(nn.Module):
    """[observers, 3] -> probabilities [observers, 2]"""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.affine1 = nn.Linear(3, 8)
        self.affine2 = nn.Linear(8, 2)

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=-1)


class Observer:
    """Its environment: the state is the last actions, and 1 is the good one."""

    def __init__(self):
        self.id = rpc.get_worker_info().id - 1

    def run_episode(self, agent_rref, n_steps):
        """-> rewards"""
        state, rewards = torch.zeros(3), torch.zeros(n_steps)
        for step in range(n_steps):
            action = rpc.rpc_sync(
                agent_rref.owner(), Agent.select_action_batch, args=(agent_rref, self.id, state)
            )
            state = torch.cat([state[1:], torch.tensor([float(action)])])
            rewards[step] = float(action) * 2 - 1
        return rewards


class Agent:
    """Has the policy."""

    def __init__(self, world_size):
        self.ob_rrefs = []
        self.agent_rref = rpc.RRef(self)
        self.policy = Policy()
        self.optimizer = optim.Adam(self.policy.parameters(), lr=1e-2)
        for ob_rank in range(1, world_size):
            ob_info = rpc.get_worker_info(f"observer{ob_rank}")
            self.ob_rrefs.append(rpc.remote(ob_info, Observer))
        self.generator = torch.Generator().manual_seed(9)
        self.states = torch.zeros(len(self.ob_rrefs), 3)
        self.saved_log_probs = []
        self.future_actions = torch.futures.Future()
        self.lock = threading.Lock()
        self.pending_states = len(self.ob_rrefs)

    @staticmethod
    @rpc.functions.async_execution
    def select_action_batch(agent_rref, ob_id, state):
        """The observer's action, once all have sent their states."""
        self = agent_rref.local_value()
        with self.lock:
            self.states[ob_id].copy_(state)
            self.pending_states -= 1
            future_action = self.future_actions.then(
                lambda future_actions: future_actions.wait()[ob_id].item()
            )
            if self.pending_states == 0:
                self.pending_states = len(self.ob_rrefs)
                probs = self.policy(self.states.clone())
                actions = torch.multinomial(probs.detach(), 1, generator=self.generator)[:, 0]
                self.saved_log_probs.append(Categorical(probs).log_prob(actions))
                future_actions = self.future_actions
                self.future_actions = torch.futures.Future()
                future_actions.set_result(actions)
        return future_action

    def run_episode(self, n_steps):
        """All observers at once. -> what all earned"""
        futs = [ob_rref.rpc_async().run_episode(self.agent_rref, n_steps) for ob_rref in self.ob_rrefs]
        rewards = torch.stack([fut.wait() for fut in futs], dim=1)
        log_probs = torch.stack(self.saved_log_probs)
        self.saved_log_probs = []
        loss = -(log_probs * rewards).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return rewards.sum().item()


def run_worker(rank, world_size):
    """An agent and observers."""
    said = []
    if rank == 0:
        rpc.init_rpc("agent", rank=rank, world_size=world_size)
        agent = Agent(world_size)
        said = [agent.run_episode(STEPS) for _ in range(EPISODES)]
        said += [float(p.detach().abs().sum()) for p in agent.policy.parameters()]
    else:
        rpc.init_rpc(f"observer{rank}", rank=rank, world_size=world_size)
    rpc.shutdown()
    return said
