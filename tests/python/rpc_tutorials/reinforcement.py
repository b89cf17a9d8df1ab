"""An agent with a policy and observers with an environment each, as in torch's tutorial "Getting Started with
Distributed RPC Framework". The agent asks all observers to run an episode, they ask it for each action by its
RRef, and it learns from all episodes together. The environment: walk to the end of a line."""
import torch
import torch.distributed.rpc as rpc
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.rpc import RRef, remote, rpc_async, rpc_sync
from torch.distributions import Categorical

WORLD_SIZE = 3
EPISODES, STEPS = 4, 6
AGENT_NAME, OBSERVER_NAME = "agent", "observer{}"


class Line:
    """Places 0 to 4; a step to the right earns 1, one to the left -1."""

    def reset(self):
        """-> state"""
        self.place = 2
        return self.state()

    def state(self):
        """One-hot."""
        return F.one_hot(torch.tensor(self.place), 5).float()

    def step(self, action):
        """-> state, reward, whether it is over"""
        move = 1 if action == 1 else -1
        self.place = min(max(self.place + move, 0), 4)
        return self.state(), float(move), self.place == 4


class Policy(nn.Module):
    """state [n, 5] -> probabilities [n, 2]"""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.affine1 = nn.Linear(5, 8)
        self.affine2 = nn.Linear(8, 2)

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)


def _call_method(method, rref, *args, **kwargs):
    return method(rref.local_value(), *args, **kwargs)


def _remote_method(method, rref, *args, **kwargs):
    args = [method, rref] + list(args)
    return rpc_sync(rref.owner(), _call_method, args=args, kwargs=kwargs)


class Observer:
    """Runs episodes."""

    def __init__(self):
        self.id = rpc.get_worker_info().id
        self.env = Line()

    def run_episode(self, agent_rref):
        """Asks for actions, and reports rewards."""
        state = self.env.reset()
        for _ in range(STEPS):
            action = _remote_method(Agent.select_action, agent_rref, self.id, state)
            state, reward, done = self.env.step(action)
            _remote_method(Agent.report_reward, agent_rref, self.id, reward)
            if done:
                break


class Agent:
    """Has the policy; draws for each observer from a generator of its own, so that the order in which they
    ask does not matter."""

    def __init__(self, world_size):
        self.ob_rrefs, self.agent_rref = [], RRef(self)
        self.rewards, self.saved_log_probs, self.generators = {}, {}, {}
        self.policy = Policy()
        self.optimizer = optim.Adam(self.policy.parameters(), lr=1e-2)
        for ob_rank in range(1, world_size):
            ob_info = rpc.get_worker_info(OBSERVER_NAME.format(ob_rank))
            self.ob_rrefs.append(remote(ob_info, Observer))
            self.rewards[ob_info.id], self.saved_log_probs[ob_info.id] = [], []
            self.generators[ob_info.id] = torch.Generator().manual_seed(ob_info.id)

    def select_action(self, ob_id, state):
        """0 or 1"""
        probs = self.policy(state.unsqueeze(0))
        action = torch.multinomial(probs.detach(), 1, generator=self.generators[ob_id])[0]
        self.saved_log_probs[ob_id].append(Categorical(probs).log_prob(action))
        return action.item()

    def report_reward(self, ob_id, reward):
        """Of the action that was chosen last."""
        self.rewards[ob_id].append(reward)

    def run_episode(self):
        """All observers at once."""
        futs = []
        for ob_rref in self.ob_rrefs:
            futs.append(
                rpc_async(
                    ob_rref.owner(), _call_method, args=(Observer.run_episode, ob_rref, self.agent_rref)
                )
            )
        for fut in futs:
            fut.wait()

    def finish_episode(self):
        """Learns from it. -> what all earned"""
        log_probs = torch.cat([p for ob_id in self.rewards for p in self.saved_log_probs[ob_id]])
        rewards = torch.tensor([r for ob_id in self.rewards for r in self.rewards[ob_id]])
        loss = -(log_probs * (rewards - rewards.mean())).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for ob_id in self.rewards:
            self.rewards[ob_id], self.saved_log_probs[ob_id] = [], []
        return rewards.sum().item()


def run_worker(rank, world_size):
    """An agent and observers."""
    said = []
    if rank == 0:
        rpc.init_rpc(AGENT_NAME, rank=rank, world_size=world_size)
        agent = Agent(world_size)
        for _ in range(EPISODES):
            agent.run_episode()
            said.append(agent.finish_episode())
        said += [float(p.abs().sum()) for p in agent.policy.parameters()]
    else:
        rpc.init_rpc(OBSERVER_NAME.format(rank), rank=rank, world_size=world_size)
    rpc.shutdown()
    return said
