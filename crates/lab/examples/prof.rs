use lockkeeper_core::{MutualExclusion, Setup, mutex::Channels, registry};
use lockkeeper_lab::check::{machine::Faults, mutex::Sites, net::Net, search::Search};
struct V(usize, u8, bool, u64);
impl registry::Visitor for V {
    type Output = ();
    fn visit<P: MutualExclusion>(self) {
        let t = std::time::Instant::now();
        let mut net = Net::new(Sites::<P> {
            setup: Setup::new(self.0, P::Options::default()),
            requests: Some(self.1),
            fifo: P::ABOUT.channels == Channels::Fifo || std::env::var("FIFO").is_ok(),
            faults: Faults::default(),
        });
        if self.2 {
            net.sends = Some(Default::default());
            loop {
                let before = net.sends.as_ref().unwrap().steps();
                let (steps, n, d) = {
                    let mut search = Search::new(&net, 1);
                    let r = search.run(u64::MAX, |s| s.distinct < self.3);
                    if !matches!(r, lockkeeper_lab::check::search::Ended::All) {
                        println!("  {r:?}");
                        break;
                    }
                    let n = search.sofar().distinct;
                    let l = search.workers()[0].local_steps();
                    (
                        lockkeeper_lab::check::reduce::Sends::new(&l),
                        n,
                        l.iter().map(|x| x.len()).sum::<usize>(),
                    )
                };
                println!("   iteration: {n} states {d} steps {:.2}s", t.elapsed().as_secs_f64());
                net.sends = Some(steps);
                if before == d {
                    break;
                }
            }
        }
        let mut search = Search::new(&net, 1);
        let r = search.run(u64::MAX, |s| s.distinct < self.3);
        let s = search.sofar();
        let graded = search.is_graded();
        println!(
            "{:22} {:9} {:10} d{} {:.1}B graded {} {:?} {:.2}s voc {:?} seen {:?} {}",
            P::ABOUT.slug,
            s.distinct,
            s.generated,
            s.depth,
            s.bytes as f64 / s.distinct as f64,
            graded,
            match &r {
                lockkeeper_lab::check::search::Ended::Wrong(w) => format!("{:?}", w.as_ref().unwrap()),
                x => format!("{x:?}"),
            },
            t.elapsed().as_secs_f64(),
            net.vocabulary(),
            {
                let w = search.workers()[0].seen();
                (w.max_bypass, w.dearest, w.reduced, w.expanded)
            },
            ""
        );
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    for e in registry::ALL {
        if a.len() > 5 && !a[5].split(',').any(|x| x == e.about.slug) {
            continue;
        }
        registry::visit(
            e.about.slug,
            V(a[1].parse().unwrap(), a[2].parse().unwrap(), a[3] == "r", a[4].parse().unwrap()),
        );
    }
}
