// A saved run in a single file: only the player.

import { Film } from "./film.js";
import { Player } from "./player.js";

const lectureRun = JSON.parse(document.getElementById("the-run").textContent);
const lecturePlayer = new Player();
document.getElementById("app").append(lecturePlayer.element);
lecturePlayer.load(new Film(lectureRun));
