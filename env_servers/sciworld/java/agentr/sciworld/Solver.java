package agentr.sciworld;

import java.util.ArrayList;
import java.util.List;
import scala.Some;
import scala.Tuple3;
import scienceworld.runtime.pythonapi.PythonInterface;
import util.UniqueIdentifier$;

/**
 * The simulator's own solver, on a game that is already under way.
 *
 * <p>It draws random numbers and makes objects of its own between its actions. Those must not come from the game's generator and
 * counter, or its actions would not do the same when they are played again without it.
 */
final class Solver extends PythonInterface {
    private final Simulator simulator;
    private final String task;
    private final int variation;
    private final List<String> actions = new ArrayList<>();
    private Noise noise;
    private int limit;

    Solver(Simulator simulator, String task, int variation, String simplifications) {
        this.simulator = simulator;
        this.task = task;
        this.variation = variation;
        load(task, variation, simplifications, false);
        agentInterface_$eq(new Some<>(simulator.game()));
        agent_$eq(new Some<>(simulator.game().agent()));
    }

    String solve(int seed, int limit) {
        this.limit = limit;
        noise = new Noise(seed);
        noise.use();
        try {
            taskMaker().createGoldActions(task, variation, this);
        } catch (RuntimeException error) {
            return ""; // too many actions, or the solver looked for what is not there any more, and fell over
        }
        return isComplete() && score() == 1.0 ? String.join("\n", actions) : "";
    }

    @Override
    public String step(String action) {
        if (isComplete()) {
            return "";
        }
        if (actions.size() == limit) {
            throw new IllegalStateException("too many actions");
        }
        long lastId = UniqueIdentifier$.MODULE$.count();
        Tuple3<String, Object, Object> result = simulator.play(action);
        UniqueIdentifier$.MODULE$.count_$eq(lastId);
        noise.use();
        actions.add(action);
        score_$eq((Double) result._2());
        isComplete_$eq((Boolean) result._3());
        return result._1();
    }
}
