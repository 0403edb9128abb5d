//! Orders that operators give while a change is prepared which brings their tenants: with a cell, whose tenants do nothing,
//! and a preparation that goes on when the test says so.

use super::{Admission, Admitted, Facts, Parts, Supervisor};
use crate::api::{Api, LongPlaces, Routes};
use crate::controller::Controller;
use crate::events::Events;
use crate::logs::Logs;
use crate::problem::Problem;
use crate::request_log::RequestLog;
use crate::view::{self, Desired, EndBound, ErrorKind};
use axum::body::Body;
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use leasehold_cell::profile::Profile;
use leasehold_cell::{Cell, CellConfig, Input, Output, StartError, Surroundings};
use leasehold_lease::{LeaseFile, TenantSpec};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// The module `(module (memory (export "memory") 1) (func (export "_start")))`.
const PROGRAM: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x05\x03\x01\0\x01\
    \x07\x13\x02\x06memory\x02\0\x06_start\0\0\x0a\x04\x01\x02\0\x0b";

type Answer = oneshot::Receiver<Result<(view::Tenant, bool), Problem>>;

/// An admission that takes all tenants, each time when the test lets it.
struct Gate {
    leases: PathBuf,
    reached: Mutex<Sender<()>>,
    open: Mutex<Receiver<()>>,
}

impl Admission for Gate {
    fn test(&self, tenants: &[TenantSpec]) -> Result<Admitted, Problem> {
        // The test may be over.
        let _ = self.reached.lock().expect("sound").send(());
        let _ = self.open.lock().expect("sound").recv();
        let bound = EndBound {
            effect_ns: 0,
            returned_ns: None,
        };
        Ok(Admitted {
            bounds: vec![bound; tenants.len()],
            schedulable: true,
            utilization: 0.0,
        })
    }

    fn check(&self, _: &TenantSpec) -> Result<(), Problem> {
        Ok(())
    }

    fn rehearse(&self, _: &TenantSpec) -> Result<(), StartError> {
        Ok(())
    }

    fn read(&self) -> Result<LeaseFile, Problem> {
        let text = fs::read_to_string(&self.leases).expect("read");
        Ok(LeaseFile::parse(&text, &self.leases)?)
    }

    fn report(&self, _: &LeaseFile) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// A supervisor without tenants, each of whose changes waits when it is prepared.
struct Operated {
    supervisor: Supervisor,
    api: Api,
    reached: Receiver<()>,
    open: Option<Sender<()>>,
    directory: TempDir,
}

fn table(name: &str) -> String {
    format!(
        "[tenant.{name}]\ncomponent = \"program.wasm\"\nreclaim.budget = \"100ms\"\nmemory.reserve = \"1MiB\"\n"
    )
}

impl Operated {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("program.wasm"), PROGRAM).expect("written");
        let leases = directory.path().join("leases.toml");
        let file = LeaseFile::parse(&table("any"), &leases).expect("a lease file");
        let (reached_sender, reached) = channel();
        let (open, open_receiver) = channel();
        let gate = Gate {
            leases: leases.clone(),
            reached: Mutex::new(reached_sender),
            open: Mutex::new(open_receiver),
        };
        let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
        let parts = Parts {
            cell: Arc::new(cell),
            front: None,
            admission: Arc::new(gate),
            surroundings: Box::new(|spec| Surroundings {
                args: vec![spec.name.clone()],
                stdin: Input::Empty,
                stdout: Output::Discard,
                stderr: Output::Discard,
                ..Surroundings::default()
            }),
            events: Arc::new(Events::default()),
            logs: Logs::new(Arc::new(|_, _| {})),
            requests: Arc::new(RequestLog::default()),
            exporter: None,
            keeper: None,
            facts: Facts {
                order: file.order.to_string(),
                confinement: String::new(),
                listeners: Vec::new(),
                memory: None,
                code: None,
                leases,
            },
        };
        let (controller, requests) = Controller::new();
        let api = Api {
            controller: controller.clone(),
            events: parts.events.clone(),
            logs: parts.logs.clone(),
            saves: None,
            long: LongPlaces::default(),
        };
        let supervisor = Supervisor::new(parts, &controller, requests).expect("threads");
        Self {
            supervisor,
            api,
            reached,
            open: Some(open),
            directory,
        }
    }

    /// Asks for a tenant to be put.
    fn put(&mut self, name: &str) -> Answer {
        let (sender, answer) = oneshot::channel();
        self.supervisor.put(name.to_owned(), table(name), sender);
        answer
    }

    /// Waits until a change has loaded its programs.
    fn prepared(&mut self) {
        for _ in 0..20_000 {
            self.supervisor.turn(Duration::from_millis(1));
            if self.reached.try_recv().is_ok() {
                return;
            }
        }
        panic!("no change was prepared");
    }

    /// Lets the change that is prepared go on.
    fn let_go(&self) {
        let open = self.open.as_ref().expect("there until the end");
        open.send(()).expect("it waits");
    }

    fn answer<T>(&mut self, mut answer: oneshot::Receiver<T>) -> T {
        for _ in 0..20_000 {
            self.supervisor.turn(Duration::from_millis(1));
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => panic!("no answer"),
            }
        }
        panic!("no answer in time");
    }

    /// Makes a request to the interface. Returns its status and body, once the supervisor has answered.
    fn ask(&self, method: &'static str, path: &str, body: String) -> JoinHandle<(u16, String)> {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body)).expect("a request");
        let routes = Routes::new(self.api.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let answer = TowerToHyperService::new(routes.router()).call(request);
                let (parts, body) = answer.await.expect("an answer").into_parts();
                let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
                let body = String::from_utf8_lossy(&body).into_owned();
                (parts.status.as_u16(), body)
            })
        })
    }

    fn answered(&mut self, asked: JoinHandle<(u16, String)>) -> (u16, String) {
        while !asked.is_finished() {
            self.supervisor.turn(Duration::from_millis(1));
        }
        asked.join().expect("an answer")
    }

    /// Puts a tenant, and gives an order when its program is loaded. Returns what became of the put.
    fn put_during(
        &mut self,
        name: &str,
        order: impl FnOnce(&mut Supervisor),
    ) -> Result<(view::Tenant, bool), Problem> {
        let answer = self.put(name);
        self.prepared();
        order(&mut self.supervisor);
        self.let_go();
        self.answer(answer)
    }

    fn desired(&mut self, name: &str) -> Result<Desired, ErrorKind> {
        let tenant = self.supervisor.tenant(name);
        tenant.map(|it| it.desired).map_err(|problem| problem.kind)
    }
}

impl Drop for Operated {
    fn drop(&mut self) {
        self.open = None;
        self.supervisor.end(Duration::from_secs(10));
    }
}

#[test]
fn the_first_put_of_a_tenant_that_is_deleted_meanwhile_is_refused() {
    let mut operated = Operated::start();
    let result = operated.put_during("shop", |supervisor| {
        assert_eq!(supervisor.delete("shop"), Ok(false), "there is none yet");
    });
    let problem = result.expect_err("it was deleted");
    assert_eq!(problem.kind, ErrorKind::Conflict);
    assert!(problem.message.contains("was deleted while"), "{problem}");
    assert_eq!(operated.desired("shop"), Err(ErrorKind::NotFound));
    // A put that is asked for after the order is not refused.
    let put = operated.put_during("shop", |_| {}).expect("it is put");
    assert_eq!((put.0.desired, put.1), (Desired::Running, true));
}

#[test]
fn an_order_during_a_first_put_is_answered_as_the_interface_describes_it() {
    let mut operated = Operated::start();
    let path = "/v1/tenants/shop";
    let put = operated.ask("PUT", path, table("shop"));
    operated.prepared();
    let deleted = operated.ask("DELETE", path, String::new());
    assert_eq!(operated.answered(deleted).0, 204);
    operated.let_go();
    let (status, body) = operated.answered(put);
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("was deleted while"), "{body}");
    for order in ["kill", "drain"] {
        let path = format!("/v1/tenants/{order}");
        let put = operated.ask("PUT", &path, table(order));
        operated.prepared();
        let ordered = operated.ask("POST", &format!("{path}/{order}"), String::new());
        let (status, body) = operated.answered(ordered);
        assert_eq!(status, 409, "{body}");
        operated.let_go();
        let (status, body) = operated.answered(put);
        assert_eq!(status, 201, "{body}");
        assert!(body.contains("\"desired\":\"stopped\""), "{body}");
    }
}

#[test]
fn a_tenant_that_is_killed_or_drained_during_its_first_put_is_put_and_stays_stopped() {
    let mut operated = Operated::start();
    let refused = |problem: Option<Problem>| {
        let problem = problem.expect("nothing runs");
        assert_eq!(problem.kind, ErrorKind::Conflict, "{problem}");
        assert!(problem.message.contains("is not running"), "{problem}");
    };
    let killed = operated.put_during("killed", |supervisor| {
        refused(supervisor.kill("killed").err());
    });
    let drained = operated.put_during("drained", |supervisor| {
        refused(supervisor.drain_tenant("drained", Duration::ZERO).err());
    });
    for result in [killed, drained] {
        let (tenant, is_new) = result.expect("it is put");
        assert!(is_new);
        assert_eq!(tenant.desired, Desired::Stopped);
        assert_eq!(tenant.last_end, None, "it has not run");
    }
    // The last order holds.
    let started = operated.put_during("started", |supervisor| {
        refused(supervisor.kill("started").err());
        let problem = supervisor.start_again("started").err();
        assert_eq!(problem.map(|it| it.kind), Some(ErrorKind::Conflict));
    });
    assert_eq!(started.expect("it is put").0.desired, Desired::Running);
}

#[test]
fn a_kill_after_a_delete_brings_no_tenant_back_and_concerns_a_later_put() {
    let mut operated = Operated::start();
    let first = operated.put("shop");
    operated.prepared();
    let supervisor = &mut operated.supervisor;
    assert_eq!(supervisor.delete("shop"), Ok(false));
    let problem = supervisor.kill("shop").err();
    assert_eq!(problem.map(|it| it.kind), Some(ErrorKind::NotFound));
    let second = operated.put("shop");
    let problem = operated.supervisor.kill("shop").err();
    assert_eq!(problem.map(|it| it.kind), Some(ErrorKind::Conflict));
    operated.let_go();
    assert!(operated.answer(first).is_err(), "it was deleted");
    operated.prepared();
    operated.let_go();
    let (tenant, _) = operated.answer(second).expect("it is put");
    assert_eq!(tenant.desired, Desired::Stopped);
}

#[test]
fn an_order_for_a_tenant_whose_first_put_waits_for_another_change_holds() {
    let mut operated = Operated::start();
    let first = operated.put("first");
    operated.prepared();
    let [deleted, killed] = ["deleted", "killed"].map(|name| operated.put(name));
    assert_eq!(operated.supervisor.delete("deleted"), Ok(false));
    assert!(operated.supervisor.kill("killed").is_err());
    operated.let_go();
    operated.answer(first).expect("it is put");
    operated.prepared();
    operated.let_go();
    assert!(operated.answer(deleted).is_err());
    operated.prepared();
    operated.let_go();
    let (tenant, _) = operated.answer(killed).expect("it is put");
    assert_eq!(tenant.desired, Desired::Stopped);
}

#[test]
fn an_order_for_a_tenant_that_a_reload_adds_holds() {
    let mut operated = Operated::start();
    let leases = ["deleted", "killed", "kept"].map(table).concat();
    fs::write(operated.directory.path().join("leases.toml"), leases).expect("written");
    let (sender, answer) = oneshot::channel();
    operated.supervisor.reload(false, move |result| {
        // The test may be over.
        let _ = sender.send(result);
    });
    operated.prepared();
    assert_eq!(operated.supervisor.delete("deleted"), Ok(false));
    let problem = operated.supervisor.kill("killed").err();
    assert_eq!(problem.map(|it| it.kind), Some(ErrorKind::NotFound));
    operated.let_go();
    let reloaded = operated.answer(answer).expect("it is done");
    assert_eq!(reloaded.added, ["killed", "kept"]);
    assert_eq!(operated.desired("deleted"), Err(ErrorKind::NotFound));
    assert_eq!(operated.desired("killed"), Ok(Desired::Stopped));
    assert_eq!(operated.desired("kept"), Ok(Desired::Running));
}

#[test]
fn orders_for_tenants_that_a_reload_may_add_are_bounded_and_beyond_that_refused() {
    let mut operated = Operated::start();
    fs::write(operated.directory.path().join("leases.toml"), table("kept")).expect("written");
    operated.supervisor.reload(false, drop);
    operated.prepared();
    let refused = (0..2_000).find_map(|at| operated.supervisor.delete(&format!("t{at}")).err());
    let refused = refused.expect("there are too many");
    assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
    // One for a tenant that a put brings has place.
    let put = operated.put("put");
    assert_eq!(operated.supervisor.delete("put"), Ok(false));
    operated.let_go();
    operated.prepared();
    operated.let_go();
    assert!(operated.answer(put).is_err());
    assert_eq!(operated.supervisor.delete("other"), Ok(false));
}

#[test]
fn an_order_for_a_tenant_that_no_change_brings_is_refused_and_undoes_no_later_put() {
    let mut operated = Operated::start();
    let other = operated.put_during("other", |supervisor| {
        let problem = supervisor.kill("shop").err();
        assert_eq!(problem.map(|it| it.kind), Some(ErrorKind::NotFound));
        assert_eq!(supervisor.delete("shop"), Ok(false));
    });
    other.expect("it is put");
    let (tenant, _) = operated.put_during("shop", |_| {}).expect("it is put");
    assert_eq!(tenant.desired, Desired::Running);
}
