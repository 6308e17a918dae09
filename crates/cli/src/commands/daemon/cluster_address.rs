//! The addresses of a cluster's members, and the clashes between them.

use std::net::IpAddr;

/// The purposes of the ports of a member: its own port and the next ones.
const PORTS: [&str; 3] = ["members", "clients", "HTTP"];

/// The address of a member, at which the other members reach it.
#[derive(Clone)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// An address that no member can have, or two addresses that clash.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is not a host and a port with two free ports after it.
    #[error("`{text}` is no host:port; write for example a:7420")]
    NotHostPort {
        /// The address as given.
        text: String,
    },
    /// Two members have the same address.
    #[error(
        "members {one} and {two} have the same address {address}; give each member a host:port of its own"
    )]
    SameAddress {
        /// The number of the first member.
        one: u32,
        /// The number of the second member.
        two: u32,
        /// The address of the second member.
        address: String,
    },
    /// Two members use the same port of one host.
    #[error(
        "members {one} ({first}) and {two} ({second}) both use port {port}: member {one} for {purpose}, member {two} \
         for {other}; each member uses its port and the next two, so choose ports at least 3 apart"
    )]
    SamePort {
        /// The number of the first member.
        one: u32,
        /// The address of the first member.
        first: String,
        /// The number of the second member.
        two: u32,
        /// The address of the second member.
        second: String,
        /// The port that both use.
        port: u16,
        /// The purpose of the port at the first member.
        purpose: &'static str,
        /// The purpose of the port at the second member.
        other: &'static str,
    },
}

impl Address {
    /// Parses `host:port`, where the host is a name, an IPv4 address or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::NotHostPort { text: text.into() };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let address = Self { host: host.to_owned(), port };
        let name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let valid = match address.ip() {
            Some(IpAddr::V6(_)) => host.starts_with('[') && host.ends_with(']'),
            Some(IpAddr::V4(_)) => !host.starts_with('['),
            None => !host.is_empty() && host.chars().all(name),
        };
        let last = port.checked_add(PORTS.len() as u16 - 1);
        if !valid || port == 0 || last.is_none() {
            return Err(wrong());
        }
        Ok(address)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.host.trim_matches(['[', ']']).parse().ok()
    }

    /// The address to listen on for one port: the IP address that was given, or all addresses of the machine for a name.
    pub fn listen(&self, port: u16) -> String {
        match self.ip() {
            Some(_) => format!("{}:{port}", self.host),
            None => format!("0.0.0.0:{port}"),
        }
    }

    pub fn loopback(&self) -> bool {
        self.ip().is_some_and(|ip| ip.is_loopback())
    }

    /// The host in a normalized form, in which different spellings of one host are equal.
    fn machine(&self) -> String {
        match self.ip() {
            Some(ip) => ip.to_canonical().to_string(),
            None if self.host.eq_ignore_ascii_case("localhost") => String::from("127.0.0.1"),
            None => self.host.trim_end_matches('.').to_lowercase(),
        }
    }

    /// The ports of this member, each with its purpose.
    fn ports(&self) -> impl Iterator<Item = (u16, &'static str)> {
        (self.port..=u16::MAX).zip(PORTS)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Rejects two members that would listen on the same port of the same host.
///
/// Example: `a:7420` uses the ports 7420, 7421 and 7422 of `a`, so `a:7422` clashes with it and `a:7423` does not.
pub fn refuse_clashes(members: &[(u32, Address)]) -> Result<(), AddressError> {
    for (place, (id, address)) in members.iter().enumerate() {
        for (earlier, other) in &members[..place] {
            refuse_clash(Candidate { id: *earlier, address: other }, Candidate { id: *id, address })?;
        }
    }
    Ok(())
}

/// A member of the new cluster, with its address.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    id: u32,
    address: &'a Address,
}

fn refuse_clash(one: Candidate<'_>, two: Candidate<'_>) -> Result<(), AddressError> {
    let ((one, first), (two, second)) = ((one.id, one.address), (two.id, two.address));
    if first.machine() != second.machine() {
        return Ok(());
    }
    if first.port == second.port {
        return Err(AddressError::SameAddress { one, two, address: second.to_string() });
    }
    let clash = first.ports().find_map(|(port, purpose)| {
        let (_, other) = second.ports().find(|(taken, _)| *taken == port)?;
        Some((port, purpose, other))
    });
    match clash {
        None => Ok(()),
        Some((port, purpose, other)) => {
            let (first, second) = (first.to_string(), second.to_string());
            Err(AddressError::SamePort { one, first, two, second, port, purpose, other })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(texts: &[&str]) -> Vec<(u32, Address)> {
        (1..).zip(texts.iter().map(|text| Address::parse(text).unwrap())).collect()
    }

    #[test]
    fn addresses_are_a_host_and_a_port_with_two_free_ports_after_it() {
        for text in ["a:7420", "10.0.0.1:7420", "[::1]:7420", "node-1.example.:65533"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["a", ":7420", "a:", "a:0", "a:65534", "a:x", "1=a:7420", "a b:7420", "::1:7420", "[10.0.0.1]:1"]
        {
            assert!(Address::parse(text).is_err_and(|error| error.to_string().contains(text)), "{text}");
        }
    }

    #[test]
    fn members_whose_ports_overlap_on_one_host_clash() {
        for clean in [
            &["a:7420", "b:7420"][..],
            &["a:7420", "a:7423", "a:7417"],
            &["127.0.0.1:7420", "127.0.0.2:7420"],
        ] {
            assert_eq!(refuse_clashes(&members(clean)), Ok(()), "{clean:?}");
        }
        let address = "A:7420".to_owned();
        assert_eq!(
            refuse_clashes(&members(&["a:7420", "b:7420", "A:7420"])),
            Err(AddressError::SameAddress { one: 1, two: 3, address })
        );
        for (clashing, expected) in [
            (&["a:7420", "b:7420", "A:7420"][..], "members 1 and 3 have the same address"),
            (&["[::1]:7420", "[0:0::1]:7420"], "the same address"),
            (&["localhost:7420", "127.0.0.1:7420"], "the same address"),
            (&["a:7420", "a:7421"], "both use port 7421: member 1 for clients, member 2 for members"),
            (&["a:7422", "a:7420"], "both use port 7422: member 1 for members, member 2 for HTTP"),
        ] {
            let error = refuse_clashes(&members(clashing)).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
