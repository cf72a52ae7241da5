// A turn to a program that plays the agent's part: what it was given, and what it asks then.

import type { AskedMessage, NamedText, ProgramView } from "./api";
import { plural } from "./format";
import { Fold, Observed, Said, Trouble } from "./parts";
import { spoken } from "./words";

/** Names of tools that are shown at once, and characters of what stands in a line. */
const [MOST, SHORT] = [8, 160];

interface ProgramProps { program: ProgramView; tools: NamedText[]; turn: number; number: (id: number) => number }

export function Program({ program, tools, turn, number }: ProgramProps) {
  const beside = (call: number) => program.messages.filter(({ answers }) => answers?.[0] === turn && answers[1] === call);
  const calls = program.given.filter(({ name }) => name);
  const shown = new Set(calls.flatMap((_, at) => beside(at + 1)));
  return (
    <section class="program" aria-label="What the program was given and asks">
      {program.given.filter(({ name }) => !name).map(({ content }) => <div class="small"><span class="faint">given to the program</span> <Brief text={content.trim() || "(nothing)"} /></div>)}
      {calls.length > 0 && (
        <ol>
          {calls.map(({ name, content }, at) => (
            <li><span class="faint">call</span> <strong><Said text={name} /></strong> <Brief text={content} />{beside(at + 1).map((message) => <Message message={message} about="" />)}</li>
          ))}
        </ol>
      )}
      {program.refused && <Trouble problem={{ message: program.refused, hint: "The branch is left out: what would have come of this turn is not known. Pin what differs, or name it in env.options.ignore." }} />}
      {parting(program, turn, number) && <p class="small"><strong>{parting(program, turn, number)}</strong></p>}
      {program.messages.filter((message) => !shown.has(message)).map((message) => <Message message={message} about={message.answers ? `answers call ${message.answers[1]} of turn ${number(message.answers[0])}` : ""} />)}
      <Offer program={program} tools={tools} />
    </section>
  );
}

function Message({ message, about }: { message: AskedMessage; about: string }) {
  return <div class="message"><span class="faint small"><Said text={message.role} /> {about}</span><Observed text={message.content || "(nothing)"} /></div>;
}

function Brief({ text }: { text: string }) {
  return text.length <= SHORT ? <code><Said text={text} /></code> : <Observed text={text} />;
}

/** What other models answered on the way to a call, what it offers, and what narrows its answer. */
export function Offer({ program, tools }: { program: ProgramView; tools: NamedText[] }) {
  const offered = program.tools.map((place) => tools[place]);
  const names = offered.slice(0, MOST).map(({ name }) => name).join(", ");
  return (
    <>
      {program.others.map(({ name, content }) => <Fold title={`the model ${name} answered`}>{() => <Observed text={content || "(nothing)"} />}</Fold>)}
      {program.settings.map(({ name, content }) => <div class="small"><span class="faint">narrowed by <Said text={spoken(name)} /></span> <Brief text={content} /></div>)}
      {offered.length > 0 && (
        <Fold title={`${plural(offered.length, "tool")} offered: ${names}${offered.length > MOST ? ", …" : ""}`}>
          {() => offered.map(({ name, content, cut }) => (
            <Fold title={name}>{() => <><pre class="wrote"><Said text={indented(content)} /></pre>{cut > 0 && <p class="faint">{cut} characters are left out.</p>}</>}</Fold>
          ))}
        </Fold>
      )}
    </>
  );
}

/** Where the next call leaves the conversation of its turn, or the turn itself, in a sentence. */
export function parting({ asks, after, answered, messages }: ProgramView, turn: number, number: (id: number) => number): string {
  if (!asks || (after === turn && answered)) return "";
  if (after === 0) return "Another conversation begins.";
  const again = !answered && messages.length === 0;
  if (after !== turn) return again ? `It asks the same again as before turn ${number(after)}.` : `It goes on from turn ${number(after)}${answered ? "" : ", without the answer of that turn"}.`;
  return messages[0]?.role === "assistant" ? "The program wrote this answer anew." : `The program dropped this answer${again ? ", and asks the same again" : ""}.`;
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
