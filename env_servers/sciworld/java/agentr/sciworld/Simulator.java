package agentr.sciworld;

import java.util.Arrays;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.function.Supplier;
import main.scala.scienceworld.runtime.SimplifierProcessor;
import scala.Tuple3;
import scienceworld.runtime.AgentInterface;
import scienceworld.runtime.pythonapi.PythonInterface;
import util.UniqueIdentifier$;

/**
 * One game of ScienceWorld that repeats itself exactly and can be copied; many live in one virtual machine.
 *
 * <p>The simulator was written for one game in a process: object ids and random numbers come from process-wide sources that every
 * load resets, and the order of things in a room follows from identity hashes. With several games, a load would make the others give
 * an id twice and change what happens in them. So each game keeps its own counter and generator, which are put in place for every
 * call, one call at a time; and the virtual machine must run with {@code -XX:hashCode=2}, under which all identity hashes are equal
 * ({@link #isExact}). What is made easier is a switch of the process, too, and "easy" means something else for each task: a game knows
 * its own, which is put in place as well.
 *
 * <p>Calls go to the game's core, not to the package's Python interface: that one describes the room, lists what can be referred to
 * and extends a history in every step.
 */
public final class Simulator {
    private static final PythonInterface LOADER = new PythonInterface();

    private final AgentInterface game;
    private final Noise noise;
    private long lastId;

    private Simulator(AgentInterface game, Noise noise, long lastId) {
        this.game = game;
        this.noise = noise;
        this.lastId = lastId;
    }

    /** Whether identity hashes are constant, so that games repeat themselves and copies are exact. */
    public static boolean isExact() {
        return new Object().hashCode() == new Object().hashCode();
    }

    /**
     * A fresh game.
     *
     * @throws Room.Full if there is no room for it
     */
    public static synchronized Simulator load(String task, int variation, String simplifications) {
        Room.require();
        Noise noise = new Noise(variation);
        noise.use();
        String error = LOADER.load(task, variation, simplifications, false);
        if (!error.isEmpty()) {
            throw new IllegalArgumentException(error);
        }
        return new Simulator(LOADER.agentInterface().get(), noise, UniqueIdentifier$.MODULE$.count());
    }

    /**
     * An independent game in the same state.
     *
     * @throws Room.Full if there is no room for it
     */
    public Simulator copy() {
        Room.require();
        return copied();
    }

    private Simulator copied() {
        synchronized (Simulator.class) {
            return new Simulator(Copier.copy(game), noise.copy(), lastId);
        }
    }

    /**
     * Carries out an action.
     *
     * @return a line with the score (0 to 1; negative for a failure), whether the game has ended and whether the simulator broke on
     *     the action, then the observation
     */
    public String step(String action) {
        Tuple3<String, Object, Object> result = play(action);
        return result._2() + " " + result._3() + " " + game.isInErrorState() + "\n" + result._1();
    }

    Tuple3<String, Object, Object> play(String action) {
        return inside(() -> game.step(action));
    }

    AgentInterface game() {
        return game;
    }

    public String description() {
        return inside(game::getTaskDescription);
    }

    /** The actions that the simulator lists as valid, sorted, one a line. */
    public String actions() {
        return ask(AgentInterface::getValidActionObjectCombinations, "\n");
    }

    /** The kinds of actions, or what can be referred to: what the package answers to {@code help} and {@code objects}. */
    public String help(boolean objects) {
        return ask(objects ? AgentInterface::getPossibleObjects : AgentInterface::getPossibleActions, "\n\t");
    }

    /** An answer to a question. A copy is asked, for some questions change the order in which things are found later. */
    private String ask(Function<AgentInterface, String[]> question, String separator) {
        synchronized (Simulator.class) {
            Simulator asked = copied();
            return asked.inside(() -> String.join(separator, new TreeSet<>(Arrays.asList(question.apply(asked.game)))));
        }
    }

    /**
     * Plays on to the end of the game with the simulator's own solver.
     *
     * @param seed of the solver's choices, such as where it looks first
     * @param limit of its actions
     * @return its actions, one a line; empty if it did not reach the full score
     */
    public String solve(String task, int variation, String simplifications, int seed, int limit) {
        synchronized (Simulator.class) {
            return new Solver(this, task, variation, simplifications).solve(seed, limit);
        }
    }

    /** Runs a call with this game's own counter, generator and simplifications in place. */
    private <T> T inside(Supplier<T> call) {
        synchronized (Simulator.class) {
            noise.use();
            UniqueIdentifier$.MODULE$.count_$eq(lastId);
            SimplifierProcessor.parseSimplificationStr(game.simplificationStr());
            try {
                return call.get();
            } finally {
                lastId = UniqueIdentifier$.MODULE$.count();
            }
        }
    }
}
