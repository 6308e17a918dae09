// A run in a file of its own: nothing but the player.

import { Film } from "./film.js";
import { Player } from "./player.js";

const lectureRun = JSON.parse(document.getElementById("the-run").textContent);
const lecturePlayer = new Player();
document.getElementById("app").append(lecturePlayer.element);
lecturePlayer.load(new Film(lectureRun));
