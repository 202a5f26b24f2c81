//! `gatewright cse tree`: what there is, as a picture.

use super::{Whom, content, parsed, runtime};
use anyhow::Result;
use gatewright_bindings::tasks::block_on;
use gatewright_command::{exit::Exit, face::Face};
use gatewright_onem2m::{ResourceType, Response};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Prints the tree of resources below an address, with the number of instances in each container.
#[derive(Debug, clap::Args)]
pub(super) struct Tree {
    /// The root of the tree; `-` is the CSEBase.
    #[arg(default_value = "-")]
    address: String,
    /// Maximum number of levels below the root.
    #[arg(long, value_name = "LEVELS")]
    depth: Option<u32>,
    /// List each instance instead of counting them.
    #[arg(long)]
    instances: bool,
    #[command(flatten)]
    whom: Whom,
}

/// A resource and what is below it.
#[derive(Debug, Serialize)]
struct Node {
    name: String,
    address: String,
    r#type: String,
    /// `None` at the last level that was asked for: its children are not known.
    instances: Option<usize>,
    children: Vec<Self>,
}

#[derive(Debug, Serialize)]
struct TreeReport {
    root: Node,
    /// How many are below the root, instances with them.
    resources: usize,
    /// Whether the CSE named only some of them.
    cut: bool,
}

impl Tree {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let client = self.whom.client()?;
        // 6: references to the children (m2m:resultContent); 8 would be those without the root.
        let mut below = format!("{}?rcn=6", self.address);
        if let Some(depth) = self.depth {
            below.push_str("&lvl=");
            below.push_str(&depth.to_string());
        }
        let (top, references) = block_on(&runtime()?, async {
            let top = self.whom.ask(client.get(&self.address)).await?;
            let references = self.whom.ask(client.get(&below)).await?;
            Ok::<_, anyhow::Error>((top, references))
        })?;
        let answer =
            TreeReport::of(&self.address, (&top, &references), (self.depth, self.instances));
        face.answer(&answer, || answer.text())?;
        Ok(Exit::Success)
    }
}

impl TreeReport {
    fn of(
        address: &str,
        (top, references): (&Response, &Response),
        (depth, names_instances): (Option<u32>, bool),
    ) -> Self {
        let content = parsed(top);
        let body = content.as_object().and_then(|tagged| tagged.values().next());
        let word = |name: &str| body.and_then(|body| body.get(name)).and_then(Value::as_str);
        let number = body.and_then(|body| body.get("ty")).and_then(Value::as_u64);
        let name = word("rn").unwrap_or(address).to_owned();
        let listed = references_of(&parsed(references));
        let mut below: BTreeMap<&str, Vec<&Reference>> = BTreeMap::new();
        for reference in &listed {
            below.entry(reference.parent()).or_default().push(reference);
        }
        // The root is the parent that nobody names: the shortest.
        let known = below.keys().min_by_key(|parent| parent.matches('/').count()).copied();
        let address = known.unwrap_or(&name).to_owned();
        let mut root = Node::new(&name, &address, number);
        root.grow(&below, depth, names_instances);
        Self { root, resources: listed.len(), cut: references.partial.is_some() }
    }

    fn text(&self) -> String {
        let mut text = self.root.line();
        text.push('\n');
        self.root.draw("", &mut text);
        if self.cut {
            text.push_str("… the CSE names only some: ask for a part, or fewer levels (--depth)\n");
        }
        text
    }
}

/// A child as the CSE names it (m2m:childResourceRef).
struct Reference {
    name: String,
    address: String,
    kind: Option<u64>,
}

impl Reference {
    fn parent(&self) -> &str {
        self.address.rsplit_once('/').map_or("", |(parent, _)| parent)
    }
}

fn references_of(content: &Value) -> Vec<Reference> {
    // In one wrapper or none: both are met.
    let list = content.get("m2m:rrl").unwrap_or(content);
    let list = list.get("rrf").or_else(|| content.get("m2m:rrf")).unwrap_or(list);
    let read = |entry: &Value| {
        let address = entry.get("val").and_then(Value::as_str)?.to_owned();
        let name = entry.get("nm").and_then(Value::as_str);
        let name = name.or_else(|| address.rsplit('/').next()).unwrap_or_default().to_owned();
        Some(Reference { name, address, kind: entry.get("typ").and_then(Value::as_u64) })
    };
    list.as_array().map(|list| list.iter().filter_map(read).collect()).unwrap_or_default()
}

fn known(number: Option<u64>) -> Option<ResourceType> {
    ResourceType::from_number(u16::try_from(number?).ok()?)
}

const fn is_instance(kind: Option<ResourceType>) -> bool {
    matches!(
        kind,
        Some(
            ResourceType::ContentInstance
                | ResourceType::TimeSeriesInstance
                | ResourceType::FlexContainerInstance
        )
    )
}

impl Node {
    fn new(name: &str, address: &str, number: Option<u64>) -> Self {
        let r#type = match (known(number), number) {
            (Some(kind), _) => content::name(kind).to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => "?".to_owned(),
        };
        let (name, address) = (name.to_owned(), address.to_owned());
        Self { name, address, r#type, instances: None, children: Vec::new() }
    }

    /// Takes its children, down to so many levels if there is a limit.
    fn grow(
        &mut self,
        below: &BTreeMap<&str, Vec<&Reference>>,
        levels: Option<u32>,
        names_instances: bool,
    ) {
        if levels == Some(0) {
            return;
        }
        let mut instances = 0;
        for child in below.get(self.address.as_str()).into_iter().flatten() {
            if is_instance(known(child.kind)) {
                instances += 1;
                if !names_instances {
                    continue;
                }
            }
            let mut node = Self::new(&child.name, &child.address, child.kind);
            node.grow(below, levels.map(|levels| levels - 1), names_instances);
            self.children.push(node);
        }
        self.instances = Some(instances);
    }

    fn line(&self) -> String {
        let mut line = format!("{} ({})", self.name, self.r#type);
        if let Some(instances @ 1..) = self.instances {
            let s = if instances == 1 { "" } else { "s" };
            line += ", ";
            line += &instances.to_string();
            line += " instance";
            line += s;
        }
        line
    }

    fn draw(&self, indent: &str, text: &mut String) {
        for (at, child) in self.children.iter().enumerate() {
            let last = at + 1 == self.children.len();
            let (branch, more) =
                if last { ("└── ", "    ") } else { ("├── ", "│   ") };
            text.extend([indent, branch, &child.line(), "\n"]);
            child.draw(&format!("{indent}{more}"), text);
        }
    }
}
