package agentr.sciworld;

/**
 * Room for further games. A virtual machine that runs out of memory breaks the games that it has, so it takes no more before.
 *
 * <p>What is left over is for the games to grow, and for questions, which copy a game for a moment.
 */
final class Room {
    /** Share of the heap that no further game may take. */
    private static final double LEFT_OVER = 0.1;
    /** Least time between two collections that are made to find out; each stops all games for up to a second. */
    private static final long PAUSE_NS = 1_000_000_000L;

    private static long collected = System.nanoTime() - PAUSE_NS;

    private Room() {}

    /** There is none. */
    static final class Full extends RuntimeException {
        private static final long serialVersionUID = 1;

        Full(String message) {
            super(message);
        }
    }

    /**
     * Returns if there is room for another game.
     *
     * @throws Full if there is none
     */
    static synchronized void require() {
        if (free() >= LEFT_OVER) {
            return;
        }
        if (System.nanoTime() - collected >= PAUSE_NS) {
            System.gc();
            collected = System.nanoTime();
        }
        if (free() < LEFT_OVER) {
            long size = Runtime.getRuntime().maxMemory() >> 20;
            throw new Full(String.format("less than %.0f %% of the %d MiB for games is free", 100 * LEFT_OVER, size));
        }
    }

    /** Free share of the heap; what is garbage but not yet collected counts as taken. */
    private static double free() {
        Runtime runtime = Runtime.getRuntime();
        return 1.0 - (double) (runtime.totalMemory() - runtime.freeMemory()) / runtime.maxMemory();
    }
}
