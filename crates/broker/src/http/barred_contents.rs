//! What a stack refuses since a roll-back.

pub mod delete;
pub mod list;

use brokkr_api::ErrorCode;
use brokkr_api::objects::BarredContent;

use crate::error::ApiError;

/// Why a content is refused, and by whom.
pub fn refusal(bar: &BarredContent) -> ApiError {
    let because = if bar.reason.is_empty() { String::new() } else { format!(": {}", bar.reason) };
    let detail = format!(
        "this content was rolled back as version {} by {} at {}{because}",
        bar.sequence_id, bar.barred_by, bar.created_at
    );
    ApiError::new(ErrorCode::BRK2011, detail)
}
