//! The persistence domain: which bytes survive a power cut by themselves, and the instruction that flushes the
//! others.

use crate::config::Domain;
use crate::{Error, Result};
use mangrove_sys::FlushInstruction;
use std::fmt;

/// The persistence domain that a pool on memory uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistenceDomain {
    /// True when the domain holds the CPU caches (eADR, CXL GPF).
    pub eadr: bool,
    /// How lines are flushed; `None` with eADR.
    pub instruction: FlushInstruction,
}

impl fmt::Display for PersistenceDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", if self.eadr { "eADR" } else { "ADR" }, self.instruction)
    }
}

impl PersistenceDomain {
    /// The domain that option, environment and platform determine, in this order.
    ///
    /// # Errors
    /// `Unsupported` when a variable has a value that it cannot have, or this CPU lacks the instruction.
    pub fn resolve(choice: Domain, instruction: Option<FlushInstruction>) -> Result<Self> {
        let eadr = match choice {
            Domain::Adr => false,
            Domain::Eadr => true,
            Domain::Auto => match std::env::var("MANGROVE_DOMAIN").as_deref() {
                Ok("eadr") => true,
                Ok("adr") => false,
                Ok("auto" | "") | Err(_) => mangrove_sys::caches_are_persistent(),
                Ok(other) => {
                    return Err(Error::Unsupported {
                        what: format!("MANGROVE_DOMAIN is {other:?}; it may be adr, eadr or auto"),
                    });
                }
            },
        };
        let wanted = match (instruction, std::env::var("MANGROVE_FLUSH").as_deref()) {
            (Some(i), _) => Some(i),
            (None, Ok("clwb")) => Some(FlushInstruction::Clwb),
            (None, Ok("clflushopt")) => Some(FlushInstruction::Clflushopt),
            (None, Ok("clflush")) => Some(FlushInstruction::Clflush),
            (None, Ok("none")) => Some(FlushInstruction::None),
            (None, Ok("auto" | "") | Err(_)) => None,
            (None, Ok(other)) => {
                return Err(Error::Unsupported {
                    what: format!(
                        "MANGROVE_FLUSH is {other:?}; it may be clwb, clflushopt, clflush, none or auto"
                    ),
                });
            }
        };
        let instruction = match wanted {
            Some(i) if !i.is_available() => {
                return Err(Error::Unsupported { what: format!("this CPU has no {i} instruction") });
            }
            Some(FlushInstruction::None) if !eadr => {
                return Err(Error::Unsupported {
                    what: "flushing with no instruction is right only where the caches are persistent (eadr)"
                        .into(),
                });
            }
            // With eADR a flush is at most a hint, so an instruction is used only if it was asked for.
            Some(i) => i,
            None if eadr => FlushInstruction::None,
            None => FlushInstruction::detect(),
        };
        Ok(Self { eadr, instruction })
    }
}
