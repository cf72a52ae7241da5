import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { alone, firstRoute, holds } from "./answers";
import { plain, readable } from "./hostile";
import { Epoch, useLive, useRoute } from "./hooks";
import { ComparePage } from "./pages/compare";
import { DatasetPage } from "./pages/dataset";
import { EpisodesPage } from "./pages/episodes";
import { ForestPage } from "./pages/forest";
import { LogPage } from "./pages/log";
import { PatternsPage } from "./pages/patterns";
import { RowPage } from "./pages/row";
import { RunPage } from "./pages/run";
import { RunsPage } from "./pages/runs";
import { StepsPage } from "./pages/steps";
import { TasksPage } from "./pages/tasks";
import { TreePage } from "./pages/tree";
import { Chip, Said } from "./parts";
import { href, type PageName, type Route } from "./route";
import { useScroll } from "./scroll";

const TABS: [PageName, string, PageName[]][] = [
  ["run", "Overview", ["run", "steps"]],
  ["tasks", "Tasks", ["tasks", "episodes"]],
  ["patterns", "Patterns", ["patterns"]],
  ["forest", "Trees", ["forest", "tree"]],
  ["dataset", "Datasets", ["dataset", "row"]],
  ["log", "Logs", ["log"]],
];

function App() {
  const route = useRoute();
  const run = route.page === "compare" ? "" : route.run;
  const state = useLive(run);
  const main = useRef<HTMLElement>(null);
  useScroll(route, main);
  useEffect(() => {
    document.title = titleOf(route);
  }, [route]);
  return (
    <Epoch.Provider value={state.epoch}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <header class="top">
        {alone ? <span class="brand">agentr</span> : <a class="brand" href="#/">agentr</a>}
        {run && (
          <>
            <a class="runname" href={href("run", run)}><Said text={alone ? "this run" : run} /></a>
            {(!alone || firstRoute === href("run", run)) && <Tabs route={route} />}
            {state.live && <Chip kind="live">running{state.now && <>: <Said text={state.now} /></>}</Chip>}
          </>
        )}
      </header>
      <main id="main" tabIndex={-1} ref={main} key={`${route.page} ${route.run}`}>
        <Page route={route} />
      </main>
    </Epoch.Provider>
  );
}

function Tabs({ route }: { route: Route }) {
  return (
    <nav aria-label="Of this run" class="tabs">
      {TABS.filter(([page]) => !alone || holds(page)).map(([page, title, pages]) => (
        <a href={href(page, route.run)} aria-current={pages.includes(route.page) ? "page" : undefined}>{title}</a>
      ))}
    </nav>
  );
}

function Page({ route }: { route: Route }) {
  switch (route.page) {
    case "runs": return <RunsPage query={route.query} />;
    case "run": return <RunPage run={route.run} />;
    case "compare": return <ComparePage id={route.run} query={route.query} />;
    case "tasks": return <TasksPage run={route.run} query={route.query} />;
    case "episodes": return <EpisodesPage run={route.run} query={route.query} />;
    case "patterns": return <PatternsPage run={route.run} query={route.query} />;
    case "steps": return <StepsPage run={route.run} query={route.query} />;
    case "forest": return <ForestPage run={route.run} query={route.query} />;
    case "tree": return <TreePage run={route.run} query={route.query} />;
    case "dataset": return <DatasetPage run={route.run} query={route.query} />;
    case "row": return <RowPage run={route.run} query={route.query} />;
    case "log": return <LogPage run={route.run} query={route.query} />;
    case "unknown": return <><h1>There is no such page</h1><p><a href="#/">All runs</a></p></>;
  }
}

function titleOf(route: Route): string {
  const { query } = route;
  const what = query.key ?? query.task ?? query.stage ?? query.name ?? "";
  const parts = [readable(what), route.page === "runs" || route.page === "run" ? "" : route.page, route.run, "agentr"];
  return plain(parts.filter(Boolean).join(" · ")).slice(0, 120);
}

const root = document.getElementById("app");
if (root) render(<App />, root);
