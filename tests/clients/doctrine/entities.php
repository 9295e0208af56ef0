<?php
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\Id\AbstractIdGenerator;
use Doctrine\ORM\Mapping as ORM;

class Snowflake extends AbstractIdGenerator
{
    public function generateId(EntityManagerInterface $em, $entity)
    {
        return $em->getConnection()->fetchOne('SELECT snowflake_next_id()');
    }
}

#[ORM\Entity]
#[ORM\Table(name: 'users')]
class User
{
    #[ORM\Id, ORM\Column(type: 'bigint', options: ['default' => 'snowflake_next_id()'])]
    #[ORM\GeneratedValue(strategy: 'CUSTOM'), ORM\CustomIdGenerator(Snowflake::class)]
    public ?string $id = null;

    public function __construct(#[ORM\Column(type: 'text', unique: true)] public string $name)
    {
    }
}

#[ORM\Entity]
#[ORM\Table(name: 'photos')]
class Photo
{
    #[ORM\Id, ORM\Column(type: 'bigint', options: ['default' => 'snowflake_next_id()'])]
    #[ORM\GeneratedValue(strategy: 'CUSTOM'), ORM\CustomIdGenerator(Snowflake::class)]
    public ?string $id = null;

    #[ORM\ManyToOne, ORM\JoinColumn(nullable: false, options: ['default' => null])]
    public User $user;

    public function __construct(User $user, #[ORM\Column(type: 'text')] public string $caption)
    {
        $this->user = $user;
    }
}

// Other mappings of the same tables, for the traps.

#[ORM\Entity]
#[ORM\Table(name: 'photos')]
class PhotoWithDefaults
{
    #[ORM\Id, ORM\Column(type: 'bigint', options: ['default' => 'snowflake_next_id()'])]
    public string $id;

    #[ORM\ManyToOne, ORM\JoinColumn(nullable: false)]
    public User $user;

    #[ORM\Column(type: 'text')]
    public string $caption;
}

#[ORM\Entity]
#[ORM\Table(name: 'users')]
class UserWithoutDefault
{
    #[ORM\Id, ORM\Column(type: 'bigint')]
    public string $id;

    #[ORM\Column(type: 'text', unique: true)]
    public string $name;
}

#[ORM\Entity]
#[ORM\Table(name: 'users')]
class UserWithIdentity
{
    #[ORM\Id, ORM\Column(type: 'bigint'), ORM\GeneratedValue(strategy: 'IDENTITY')]
    public ?string $id = null;

    public function __construct(#[ORM\Column(type: 'text', unique: true)] public string $name)
    {
    }
}
