package agentr.sciworld;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import scala.Some;
import sun.misc.Unsafe;

/**
 * Copies an object graph: everything that a root reaches, shape and sharing kept, constructors not run.
 *
 * <p>Not copied but shared: strings, boxed numbers and classes, Scala's singletons, and the grammar and the table of actions, which
 * no game changes. A graph with an object whose insides this class may not see (one of Java's own collections, a closure) is refused.
 *
 * <p>A hash table survives this only if no key's hash changes. The virtual machine therefore runs with constant identity hashes
 * (see {@code Simulator}), and the tables in here, which would suffer from that, are kept small: one for each class of objects.
 */
final class Copier {
    private static final Unsafe UNSAFE = unsafe();
    private static final AtomicInteger CLASSES = new AtomicInteger();
    private static final ClassValue<Layout> LAYOUTS = new ClassValue<Layout>() {
        @Override
        protected Layout computeValue(Class<?> type) {
            return new Layout(type);
        }
    };

    /** For each class, by its index, what was copied to what. */
    private final List<Map<Object, Object>> copies = new ArrayList<>();
    /** Originals, each followed by its copy, whose insides are still to be copied. */
    private final Deque<Object> unfinished = new ArrayDeque<>();

    private Copier() {}

    /** An independent copy of what {@code root} reaches. */
    @SuppressWarnings("unchecked")
    static <T> T copy(T root) {
        try {
            Copier copier = new Copier();
            T copy = (T) copier.of(root);
            while (!copier.unfinished.isEmpty()) {
                copier.fill(copier.unfinished.poll(), copier.unfinished.poll());
            }
            return copy;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("the game cannot be copied: " + error, error);
        }
    }

    /** The copy of an object, still empty where this is the first time that it is met. */
    private Object of(Object original) throws InstantiationException {
        if (original == null) {
            return null;
        }
        Layout layout = LAYOUTS.get(original.getClass());
        switch (layout.kind) {
            case SHARED:
                return original;
            case OWNED:
                return empty(original);
            default:
                Map<Object, Object> known = table(layout.index);
                Object copy = known.get(original);
                if (copy == null) {
                    copy = empty(original);
                    known.put(original, copy);
                }
                return copy;
        }
    }

    private Object empty(Object original) throws InstantiationException {
        Class<?> type = original.getClass();
        Object copy = type.isArray() ? Array.newInstance(type.getComponentType(), Array.getLength(original)) : UNSAFE.allocateInstance(type);
        unfinished.add(original);
        unfinished.add(copy);
        return copy;
    }

    private Map<Object, Object> table(int index) {
        while (copies.size() <= index) {
            copies.add(new IdentityHashMap<>(4));
        }
        return copies.get(index);
    }

    private void fill(Object original, Object copy) throws ReflectiveOperationException {
        if (original instanceof Object[]) {
            Object[] from = (Object[]) original;
            Object[] to = (Object[]) copy;
            for (int i = 0; i < from.length; i++) {
                to[i] = of(from[i]);
            }
        } else if (original.getClass().isArray()) {
            System.arraycopy(original, 0, copy, 0, Array.getLength(original));
        } else {
            Layout layout = LAYOUTS.get(original.getClass());
            for (Field field : layout.primitives) {
                field.set(copy, field.get(original));
            }
            for (Field field : layout.references) {
                field.set(copy, of(field.get(original)));
            }
        }
    }

    private static Unsafe unsafe() {
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (Unsafe) field.get(null);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    private enum Kind {
        /** Never changes, so that copies may refer to the original. */
        SHARED,
        /** Reached from one place only, so that nothing has to be remembered: arrays inside collections, options. */
        OWNED,
        /** Everything else. */
        COPIED
    }

    /** What the copier knows about a class. */
    private static final class Layout {
        final int index = CLASSES.getAndIncrement();
        final Kind kind;
        final List<Field> primitives = new ArrayList<>();
        final List<Field> references = new ArrayList<>();

        Layout(Class<?> type) {
            kind = isShared(type) ? Kind.SHARED : type.isArray() || type == Some.class ? Kind.OWNED : Kind.COPIED;
            if (kind == Kind.SHARED || type.isArray()) {
                return;
            }
            for (Class<?> at = type; at != Object.class; at = at.getSuperclass()) {
                for (Field field : at.getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers())) {
                        field.setAccessible(true);
                        (field.getType().isPrimitive() ? primitives : references).add(field);
                    }
                }
            }
        }

        private static boolean isShared(Class<?> type) {
            String name = type.getName();
            return type == String.class
                    || type == Class.class
                    || type == Boolean.class
                    || type == Character.class
                    || Number.class.isAssignableFrom(type)
                    || name.endsWith("$")
                    || name.startsWith("language.model.")
                    || name.equals("scienceworld.input.ActionHandler");
        }
    }
}
