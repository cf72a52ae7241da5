package agentr.sciworld;

import java.lang.reflect.Field;
import java.util.Random;
import scala.util.Random$;

/**
 * The random numbers of one game: java.util.Random's published generator over a field that can be copied.
 *
 * <p>The simulator draws from one generator for the whole process. {@link #use} makes that one draw from a game's own.
 */
final class Noise extends Random {
    private static final long serialVersionUID = 1;
    private static final long MASK = (1L << 48) - 1;
    private static final Field GENERATOR = generator();

    private long state;

    Noise(long seed) {
        super(seed);
    }

    Noise copy() {
        Noise copy = new Noise(0);
        copy.state = state;
        return copy;
    }

    /** From now on the simulator's random numbers are these. */
    void use() {
        try {
            GENERATOR.set(Random$.MODULE$, this);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void setSeed(long seed) {
        state = (seed ^ 0x5DEECE66DL) & MASK;
    }

    @Override
    protected int next(int bits) {
        state = (state * 0x5DEECE66DL + 0xBL) & MASK;
        return (int) (state >>> (48 - bits));
    }

    private static Field generator() {
        try {
            Field field = scala.util.Random.class.getDeclaredField("self");
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException error) {
            throw new ExceptionInInitializerError(error);
        }
    }
}
