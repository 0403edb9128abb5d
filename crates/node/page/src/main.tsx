import { render } from "preact";
import { takeToken } from "./interface";
import { Page } from "./page";
import { watch } from "./watch";

takeToken();
// A link with a new token may be opened where the page is open already.
addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#token=")) return;
  takeToken();
  watch.refresh();
});
void watch.run();
render(<Page />, document.getElementById("page")!);
