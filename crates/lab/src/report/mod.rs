//! The report: one HTML file with every chart, its data, method and machine; and CSV.

mod between;
pub(crate) mod chart;
mod figures;
mod page;
mod statements;
mod table;

pub use between::{agents_csv, agents_html};
pub use chart::{BarChart, ChartSeries, ChartSpan, LabChart, Mark};
pub(crate) use figures::in_words;
pub use page::{counted, html};
pub use statements::{Agreement, PaperStatement, statements};
pub use table::csv;
